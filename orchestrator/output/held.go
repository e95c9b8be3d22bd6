package output

import "sync"

// mostHeld is how much of standard error is held back; of what is beyond it the log has all.
const mostHeld = 1 << 20

// held is what rank 0 prints to standard error while it is not known whether it is the cause
// of a failure or a victim, whose traceback would hide the cause.
type held struct {
	mu   sync.Mutex
	on   bool
	text []byte
}

// take keeps text if it is to be held back.
func (h *held) take(text []byte) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.on {
		h.text = append(h.text, text[:min(len(text), mostHeld-len(h.text))]...)
	}
	return h.on
}

// Hold keeps what rank 0 prints to standard error from here on off the screen; its log has it.
func (r *Ranks) Hold() {
	r.held.mu.Lock()
	defer r.held.mu.Unlock()
	r.held.on = true
}

// ShowHeld shows what was held back; call it after Close.
func (r *Ranks) ShowHeld() {
	r.held.mu.Lock()
	defer r.held.mu.Unlock()
	if screen := r.screens[1]; screen != nil && len(r.held.text) > 0 {
		_, _ = screen.Write(r.held.text) // a screen that is gone must not stop the run
	}
	r.held.text = nil
}
