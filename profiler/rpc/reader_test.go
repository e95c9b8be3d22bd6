package rpc

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cephalorun/cephalorun/profiler"
)

// serveReadings is a plugin with one GPU, which answers so often; 0 is for ever.
func serveReadings(answers int) int {
	return Serve(func(Request) profiler.Provider { return readableFake{fake{}, answers} }, os.Stderr)
}

type readableFake struct {
	fake
	answers int
}

// Reader implements readable.
func (f readableFake) Reader() profiler.Reader { return &fakeReader{answers: f.answers} }

// fakeReader counts how often it was asked in this process.
type fakeReader struct{ answers, asked int }

// Readings implements profiler.Reader.
func (f *fakeReader) Readings(context.Context) ([]profiler.Reading, error) {
	f.asked++
	if f.answers > 0 && f.asked > f.answers {
		select {}
	}
	return []profiler.Reading{{UUID: "GPU-1", TemperatureC: f.asked, ECCErrors: profiler.Unknown}}, nil
}

// Close implements profiler.Reader.
func (f *fakeReader) Close() {}

// User case 37: a plugin that is killed, or hangs, costs one reading; the next one starts
// another.
func TestUserCase37APluginThatIsKilledOrHangsIsStartedAgain(t *testing.T) {
	for _, mode := range []string{"read", "read-twice"} {
		t.Run(mode, func(t *testing.T) {
			r := Client{Path: as(t, mode), CallLimit: 2 * time.Second}.Reader()
			defer r.Close()
			ctx := context.Background()
			for want := 1; want <= 2; want++ { // one process answers both
				got, err := r.Readings(ctx)
				if err != nil || len(got) != 1 || got[0].TemperatureC != want || got[0].Stale {
					t.Fatalf("got %+v, %v", got, err)
				}
			}
			old := r.PID()
			if mode == "read" {
				if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
			got, err := r.Readings(ctx)
			if !errors.Is(err, profiler.ErrCannotAsk) || len(got) != 1 || !got[0].Stale || got[0].TemperatureC != 2 || !strings.Contains(got[0].Problem, "cannot be read") {
				t.Fatalf("got %+v, %v", got, err)
			}
			if err := syscall.Kill(old, 0); !errors.Is(err, syscall.ESRCH) {
				t.Errorf("the old plugin is still there: %v", err)
			}
			got, err = r.Readings(ctx)
			if err != nil || got[0].TemperatureC != 1 || got[0].Stale || r.PID() == old {
				t.Errorf("got %+v, %v from %d", got, err, r.PID())
			}
		})
	}
}

func TestAPluginWithoutReadingsSaysSo(t *testing.T) {
	r := Client{Path: as(t, "serve")}.Reader()
	defer r.Close()
	if _, err := r.Readings(context.Background()); !errors.Is(err, profiler.ErrCannotAsk) || !strings.Contains(err.Error(), "has no readings") {
		t.Errorf("got %v", err)
	}
}
