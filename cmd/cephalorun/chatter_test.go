package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// chatterText is what a line is filled up with: a usual line has some 80 bytes.
const chatterText = "the quick brown fox jumps over the lazy dog and back"

func chatterLine(rank, i int) string { return fmt.Sprintf("rank %d line %d %s", rank, i, chatterText) }

// chatter prints lines one by one, on both streams in turn.
func (w *fakeWorker) chatter(lines, perSecond int) {
	fmt.Println("chatter begins")
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	began := time.Now()
	for i := range lines {
		for perSecond > 0 && time.Since(began) < time.Duration(i)*time.Second/time.Duration(perSecond) {
			<-tick.C
		}
		_, _ = fmt.Fprintln([]*os.File{os.Stdout, os.Stderr}[i%2], chatterLine(w.rank, i))
	}
	fmt.Println("chatter ends")
}

// eight is a devices file for as many ranks.
func (b *bench) eight() string {
	text := "devices:\n"
	for i := range 8 {
		text += fmt.Sprintf("  - { name: d%d, kind: cpu, threads: 1, memory: 1GiB }\n", i)
	}
	return b.file("eight.yaml", text)
}

func TestNoLineOfEightRanksIsLostOrMixed(t *testing.T) {
	const lines = 4000
	b := newBench(t)
	b.mustRun(exitDone, nil, "--devices", b.eight(), b.file("train.py", fmt.Sprintf("measure float32\nsteps 1\nchatter %d 0\n", lines)))
	for rank := range 8 {
		next := [2]int{0, 1} // of each stream; the two are read side by side
		log := readFile(t, filepath.Join(b.dir, "state", "runs", "latest", "logs", fmt.Sprintf("rank-%d.log", rank)))
		for _, line := range strings.Split(strings.TrimSuffix(log, "\n"), "\n") {
			switch line {
			case "chatter begins", "chatter ends":
				continue
			case chatterLine(rank, next[0]):
				next[0] += 2
			case chatterLine(rank, next[1]):
				next[1] += 2
			default:
				t.Fatalf("rank %d: %q, after %v", rank, line, next)
			}
		}
		if next != [2]int{lines, lines + 1} {
			t.Errorf("rank %d: lines up to %v", rank, next)
		}
	}
	if shown := strings.Count(b.out.String()+b.err.String(), "rank 0 line "); shown != lines {
		t.Errorf("%d lines of rank 0 on the screen", shown)
	}
}

// BenchmarkSupervisor is what supervision costs while 8 ranks print 1,000 lines/s each,
// half of them on standard error: the share of a core in percent, and resident memory.
//
//	go test ./cmd/cephalorun -run '^$' -bench Supervisor -benchtime 1x
func BenchmarkSupervisor(b *testing.B) {
	const seconds = 10
	for b.Loop() {
		bench := newBench(b)
		var before, after unix.Rusage
		began := make(chan time.Time, 1)
		bench.out.on("chatter begins", func() {
			_ = unix.Getrusage(unix.RUSAGE_SELF, &before)
			began <- time.Now()
		})
		bench.mustRun(exitDone, nil, "--devices", bench.eight(), bench.file("train.py", fmt.Sprintf("measure float32\nsteps 1\nchatter %d 1000\n", 1000*seconds)))
		_ = unix.Getrusage(unix.RUSAGE_SELF, &after)
		took := time.Since(<-began).Seconds()
		cpu := func(r unix.Rusage) float64 { return float64(r.Utime.Nano()+r.Stime.Nano()) / 1e9 }
		b.ReportMetric(100*(cpu(after)-cpu(before))/took, "%core")
		b.ReportMetric(float64(after.Maxrss)/1024, "MB")
		b.ReportMetric(took, "s")
	}
}
