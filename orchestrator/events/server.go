package events

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	// maxLine bounds one event; a traceback of this size is not for reading.
	maxLine = 16 << 20
	// maxPath is what a unix socket's address can hold, less its final zero.
	maxPath = 107
	// sendLimit bounds a line to a worker that does not read.
	sendLimit = time.Second
)

// Command is a line to the workers.
type Command struct {
	Kind string `json:"kind"`
}

// Stop asks workers to stop at the next end of a step.
func Stop() Command { return Command{Kind: "stop"} }

// SaveAndStop asks workers to stop when the script has saved its next checkpoint.
func SaveAndStop() Command { return Command{Kind: "save-and-stop"} }

// DumpStacks asks workers to write the stacks of their threads.
func DumpStacks() Command { return Command{Kind: "stacks"} }

// Server listens for workers.
type Server struct {
	// Dependencies, never modified.
	listener net.Listener
	path     string
	now      func() time.Time
	events   chan Event
	done     sync.WaitGroup

	// State, under mu.
	mu      sync.Mutex
	streams map[net.Conn]int // rank, or NoRank before its hello
	closed  bool
}

// Listen opens the socket in a folder that only this user may enter.
func Listen(dir string, now func() time.Time) (*Server, error) {
	path := filepath.Join(dir, "events")
	if len(path) > maxPath {
		return nil, fmt.Errorf("listen for workers: path of %d bytes is longer than the %d a socket may have: %s",
			len(path), maxPath, path)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return nil, fmt.Errorf("listen for workers: %w", err)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen for workers: %w", err)
	}
	s := &Server{listener: listener, path: path, now: now,
		events: make(chan Event, 1024), streams: map[net.Conn]int{}}
	s.done.Add(1)
	go s.accept()
	return s, nil
}

// Path is the address for workers.
func (s *Server) Path() string { return s.path }

// Events yields what workers send, in order for each rank. It is closed when the
// server is closed and all streams have ended.
func (s *Server) Events() <-chan Event { return s.events }

// acceptLimit is how long Finish still takes workers that have connected already.
const acceptLimit = 20 * time.Millisecond

// Finish closes the server when the workers have ended: what they sent to the last is
// read first, but for no longer than limit. Events must be read until then.
func (s *Server) Finish(limit time.Duration) {
	if l, ok := s.listener.(*net.UnixListener); ok {
		_ = l.SetDeadline(time.Now().Add(acceptLimit))
	}
	ended := make(chan struct{})
	go func() { defer close(ended); s.done.Wait() }()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
	}
	s.Close()
}

// Close ends all streams, on which workers go, and then the channel of events.
// Events must be read until then.
func (s *Server) Close() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed = true
	_ = s.listener.Close()
	for conn := range s.streams {
		_ = conn.Close()
	}
	s.mu.Unlock()
	s.done.Wait()
	close(s.events)
}

// Broadcast sends a command to every worker and says how many have it.
func (s *Server) Broadcast(c Command) int {
	line, err := json.Marshal(c)
	if err != nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sent := 0
	for conn := range s.streams {
		_ = conn.SetWriteDeadline(time.Now().Add(sendLimit))
		if _, err := conn.Write(append(line, '\n')); err == nil {
			sent++
		}
	}
	return sent
}

func (s *Server) accept() {
	defer s.done.Done()
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			_ = conn.Close()
			return
		}
		s.streams[conn] = NoRank
		s.done.Add(1)
		s.mu.Unlock()
		go s.serve(conn)
	}
}

// serve reads one stream to its end.
func (s *Server) serve(conn net.Conn) {
	defer s.done.Done()
	rank := NoRank
	in := bufio.NewReaderSize(conn, 64<<10)
	for {
		line, err := readLine(in)
		if len(bytes.TrimSpace(line)) > 0 {
			e := parse(line, rank, s.now())
			if rank == NoRank && e.Kind != Malformed {
				rank = e.Rank
				s.mu.Lock()
				s.streams[conn] = rank
				s.mu.Unlock()
			}
			s.events <- e
		}
		if err != nil {
			if rank != NoRank {
				s.events <- Event{Time: s.now(), Kind: Gone, Rank: rank, Message: endOfStream(err)}
			}
			break
		}
	}
	s.mu.Lock()
	delete(s.streams, conn)
	s.mu.Unlock()
	_ = conn.Close()
}

// readLine reads to the next newline; what is beyond maxLine is dropped.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		if room := maxLine - len(line); room > 0 {
			line = append(line, part[:min(room, len(part))]...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

func endOfStream(err error) string {
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		return ""
	}
	return err.Error()
}
