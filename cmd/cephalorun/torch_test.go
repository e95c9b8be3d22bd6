package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cephalorun/cephalorun/orchestrator/show"
)

// The tests in this file train examples/train_gpt.py with the real PyTorch of
// CEPHALO_PYTHON, on virtual devices of the processor.
func example(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../../examples/train_gpt.py")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// text is what the example trains on: 4096 bytes are 127 pieces of 32.
const (
	textBytes = 4096
	sequence  = 32
	pieces    = (textBytes - 1) / sequence
)

func newTorchBench(t *testing.T) *bench {
	t.Helper()
	python := os.Getenv("CEPHALO_PYTHON")
	if python == "" {
		t.Fatal("CEPHALO_PYTHON must name a Python with PyTorch; `make test` sets it")
	}
	b := newBench(t)
	b.app.environ = os.Environ()
	return b
}

// virtual writes a devices file with these slowdowns and a profile of the example on
// them, with a loader of that batch size, so that a run need not measure and plans alike
// on every machine.
func (b *bench) virtual(batch int, slowdowns ...int) (devices, profile string) {
	b.t.Helper()
	var list strings.Builder
	p := map[string]any{
		"version": 1, "ragged_factor": 1.1, "fixed_ms": 1,
		"collectives":            map[string]any{"Block": map[string]any{"all_gather_ms": 0.5, "reduce_scatter_ms": 0.5}},
		"microbatch_overhead_ms": map[string]any{"forward": 0.1, "backward": 0.1},
		"script":                 map[string]any{"batch_per_rank": batch, "data": "distributed-sampler", "samples": pieces},
		"model": map[string]any{"name": "GPT", "parameters": 50000, "trainable_parameters": 50000, "state_bytes_per_parameter": 16,
			"dtype": "float32", "units": []any{map[string]any{"class": "Block", "count": 2, "parameters": 25000, "trainable_parameters": 25000}}},
	}
	all := []any{}
	list.WriteString("devices:\n")
	for rank, slow := range slowdowns {
		name := fmt.Sprintf("d%d", rank)
		fmt.Fprintf(&list, "  - { name: %s, kind: cpu, threads: 1, memory: 1GiB, slowdown: %d }\n", name, slow)
		line := func(slope float64) map[string]any {
			return map[string]any{"points": [][2]float64{{1, slope}, {2, 2 * slope}}, "tail": map[string]any{"slope": slope, "intercept": 0}}
		}
		all = append(all, map[string]any{"rank": rank, "node": "", "kind": "cpu", "name": name, "uuid": "virtual-" + name,
			"memory_bytes": 1 << 30, "usable_memory_bytes": 1 << 30, "reserved_bytes": 200 << 20,
			"costs": map[string]any{"Block": map[string]any{"forward_ms": line(float64(slow)), "backward_ms": line(2 * float64(slow)),
				"memory_bytes": line(1 << 20), "kept_bytes_per_sample": map[string]any{"recompute": 1000, "keep": 5000}}}})
	}
	p["devices"] = all
	data, err := json.Marshal(p)
	if err != nil {
		b.t.Fatal(err)
	}
	name := fmt.Sprintf("%d-devices", len(slowdowns))
	return b.file(name+".yaml", list.String()), b.file(name+".json", string(data))
}

// options of the example: small, and in a precision in which losses can be compared.
func (b *bench) options(more ...string) []string {
	content := strings.Repeat("the quick brown fox jumps over the lazy dog; ", textBytes)[:textBytes]
	return append([]string{"--data", b.file("text", content), "--sequence", strconv.Itoa(sequence), "--layers", "2", "--width", "32", "--heads", "2"}, more...)
}

// lossLine is what the example prints for a step.
var lossLine = regexp.MustCompile(`step +(\d+)  loss ([\d.]+)`)

func lossesIn(t *testing.T, text string) map[int]float64 {
	t.Helper()
	found := map[int]float64{}
	for _, m := range lossLine.FindAllStringSubmatch(text, -1) {
		step, _ := strconv.Atoi(m[1])
		loss, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			t.Fatal(err)
		}
		found[step] = loss
	}
	return found
}

// mustAgree compares losses printed with five decimals, in fp32.
func mustAgree(t *testing.T, got, want map[int]float64, steps int) {
	t.Helper()
	for step := 1; step <= steps; step++ {
		g, inGot := got[step]
		w, inWant := want[step]
		if !inGot || !inWant || math.Abs(g-w) > 3e-5 {
			t.Errorf("step %d: loss %v, want %v", step, g, w)
		}
	}
}

func TestTheExampleHasTheLossesOfStockFSDP2(t *testing.T) {
	b := newTorchBench(t)
	devices, profile := b.virtual(6, 1, 3, 1)
	options := b.options("--steps", "6", "--batch-size", "6", "--accumulate", "2")
	stock := exec.Command(os.Getenv("CEPHALO_PYTHON"), append([]string{"-m", "torch.distributed.run", "--nproc-per-node", "2",
		"--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", example(t)}, options...)...)
	stock.Env = append(os.Environ(), "OMP_NUM_THREADS=1")
	printed, err := stock.Output()
	if err != nil {
		t.Fatalf("torchrun: %v", err)
	}
	b.mustRun(exitDone, []string{"global batch 12: --global-batch", "done after 6 steps"},
		append([]string{"--devices", devices, "--profile", profile, "--global-batch", "12", example(t)}, options...)...)
	mustAgree(t, lossesIn(t, b.out.String()), lossesIn(t, string(printed)), 6)
}

func TestARunIsResumedOnOneDeviceFewer(t *testing.T) {
	whole := newTorchBench(t)
	devices, profile := whole.virtual(4, 1, 2, 3)
	whole.mustRun(exitDone, []string{"done after 8 steps"},
		append([]string{"--devices", devices, "--profile", profile, example(t)}, whole.options("--batch-size", "4", "--steps", "8")...)...)

	b := newTorchBench(t)
	devices, profile = b.virtual(4, 1, 2, 3)
	kept := []string{"--checkpoint", filepath.Join(b.dir, "kept")}
	b.mustRun(exitDone, []string{"done after 4 steps"},
		append([]string{"--devices", devices, "--profile", profile, "--global-batch", "12", example(t)}, b.options(append(kept, "--batch-size", "4", "--steps", "4")...)...)...)
	devices, profile = b.virtual(4, 1, 2)
	b.mustRun(exitDone, []string{"done after 4 steps"},
		append([]string{"--devices", devices, "--profile", profile, "--global-batch", "12", example(t)}, b.options(append(kept, "--batch-size", "4", "--steps", "8", "--resume")...)...)...)
	mustAgree(t, lossesIn(t, b.out.String()), lossesIn(t, whole.out.String()), 8)
	if strings.Count(b.out.String(), "step     1 ") != 1 {
		t.Errorf("the second run started anew:\n%s", b.out)
	}
}

func TestTheModelIsMeasuredWhereItRuns(t *testing.T) {
	b := newTorchBench(t)
	devices, _ := b.virtual(32, 1, 4)
	b.mustRun(exitDone, []string{"profile: measuring the model on 2 devices", "32 of the script's loader on 2 ranks", "done after 6 steps"},
		append([]string{"--devices", devices, example(t)}, b.options("--steps", "6", "--batch-size", "32")...)...)
	data, err := os.ReadFile(filepath.Join(b.dir, "state", "runs", "latest", "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	var report show.Report
	if err := json.Unmarshal(data, &report); err != nil {
		t.Fatal(err)
	}
	if report.Ranks[0].Batch <= report.Ranks[1].Batch || report.Ranks[0].Batch+report.Ranks[1].Batch != 64 {
		t.Errorf("batches of %d and %d: the second device is 4 times slower", report.Ranks[0].Batch, report.Ranks[1].Batch)
	}
	for _, r := range report.Ranks {
		if r.MeasuredMemoryBytes <= 0 || r.MeasuredMemoryBytes > 1<<30 || r.MeasuredComputeMs <= 0 {
			t.Errorf("rank %d: %+v", r.Rank, r)
		}
	}
}

func TestAProfileOfAnotherBatchSizeIsRefused(t *testing.T) {
	b := newTorchBench(t)
	devices, profile := b.virtual(4, 1)
	b.mustRun(exitScript, []string{"a loader with batch size 4 over 127 samples, and the script draws from one with batch size 6"},
		append([]string{"--devices", devices, "--profile", profile, example(t)}, b.options("--batch-size", "6")...)...)
}

func TestScriptsThatCannotTrain(t *testing.T) {
	for name, c := range map[string]struct{ script, says string }{
		"raises before its first step": {"import torch\n\ndef main():\n    raise ValueError('no such data')\n\nmain()\n",
			"failed before its first step: ValueError: no such data ("},
		"never calls fully_shard": {"import torch\nprint('ready')\n", "cephalorun: TRAIN ended without a call of torch.distributed.fsdp.fully_shard, so there was nothing to measure"},
		"never trains": {"import torch\nfrom torch.distributed.fsdp import fully_shard\ntorch.distributed.init_process_group('gloo')\nfully_shard(torch.nn.Linear(2, 2))\n",
			"cephalorun: TRAIN ended without a training step, so there was nothing to measure"},
		"wants FSDP1": {"import torch\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\nFSDP(torch.nn.Linear(2, 2))\n",
			"FullyShardedDataParallel (FSDP1) is not supported"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newTorchBench(t)
			devices, _ := b.virtual(4, 1)
			script := b.file("train.py", c.script)
			b.mustRun(exitScript, []string{strings.Replace(c.says, "TRAIN", script, 1), "profile-rank-0.log"}, "--devices", devices, script)
		})
	}
}

// A run that is started again after its last step has loaded its checkpoint and finds nothing left
// to do, also where the model was not measured before.
func TestNothingIsLeftOfTheExample(t *testing.T) {
	b := newTorchBench(t)
	devices, profile := b.virtual(4, 1)
	options := b.options("--batch-size", "4", "--steps", "2", "--resume", "--checkpoint", filepath.Join(b.dir, "kept"))
	b.mustRun(exitDone, []string{"done after 2 steps"}, append([]string{"--devices", devices, "--profile", profile, example(t)}, options...)...)
	b.mustRun(exitDone, []string{"done after 0 steps", "the script found nothing left to do"}, append([]string{"--devices", devices, example(t)}, options...)...)
}

// wholeState is a script that takes its whole state out and in again, as others keep it.
const wholeState = `
import torch
from torch.distributed.checkpoint import state_dict as dcs
from torch.distributed.fsdp import fully_shard

class Block(torch.nn.Linear):
    pass

torch.distributed.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Sequential(Block(8, 8), Block(8, 8))
for block in model:
    fully_shard(block)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters())
whole = dcs.StateDictOptions(full_state_dict=True)

def rows():
    return [p.to_local().shape for p in model.parameters()], [optimizer.state[p]["exp_avg"].to_local().shape for p in model.parameters()]

for step in range(4):
    torch.manual_seed(step)
    model(torch.randn(4, 8)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    before = rows()
    if step == 1:
        of_model, of_optimizer = dcs.get_model_state_dict(model, options=whole), dcs.get_optimizer_state_dict(model, optimizer, options=whole)
        dcs.set_model_state_dict(model, of_model, options=whole)
        dcs.set_optimizer_state_dict(model, optimizer, of_optimizer, options=whole)
    if step == 2:
        model.load_state_dict({k: v.full_tensor() for k, v in model.state_dict().items()}, assign=True)
    assert rows() == before, (rows(), before)
`

// What workers install is what the package's own tests do: loading whole state keeps the layout.
func TestAScriptLoadsItsWholeState(t *testing.T) {
	b := newTorchBench(t)
	devices, profile := b.virtual(4, 1, 1)
	b.mustRun(exitDone, []string{"done after 4 steps"}, "--devices", devices, "--profile", profile, b.file("train.py", wholeState))
}

// Kill the supervisor with SIGKILL: nothing that it started is left after 10 s.
func TestNothingOutlivesAKilledSupervisor(t *testing.T) {
	b := newTorchBench(t)
	devices, profile := b.virtual(4, 1, 1)
	args := append([]string{"--state-dir", filepath.Join(b.dir, "state"), "--devices", devices, "--profile", profile, example(t)}, b.options("--batch-size", "4", "--steps", "1000000")...)
	c := exec.Command(executable(t), args...)
	c.Env = append(os.Environ(), fakeRole+"=cephalorun")
	c.Stderr = b.err
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan() && !lossLine.MatchString(lines.Text()); {
	}
	if n := processesOf(t, b.dir); n < 4 { // supervisor, launcher, two workers
		t.Errorf("%d processes while training: %s", n, b.err)
	}
	_ = c.Process.Kill()
	_ = c.Wait()
	deadline := time.Now().Add(10 * time.Second)
	for processesOf(t, b.dir) > 0 {
		if time.Now().After(deadline) {
			t.Fatalf("%d processes are left after 10 s", processesOf(t, b.dir))
		}
		time.Sleep(50 * time.Millisecond) // between two looks at /proc
	}
}

// processesOf counts processes that have a folder in their command line or environment.
func processesOf(t *testing.T, dir string) int {
	t.Helper()
	found := 0
	list, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		args, _ := os.ReadFile(filepath.Join(p, "cmdline"))
		env, _ := os.ReadFile(filepath.Join(p, "environ"))
		if strings.Contains(string(args)+string(env), dir) {
			found++
		}
	}
	return found
}
