package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cephalorun/cephalorun/orchestrator"
	"github.com/cephalorun/cephalorun/orchestrator/show"
	"github.com/cephalorun/cephalorun/profiler"
	"github.com/cephalorun/cephalorun/profiler/estimate"
	"github.com/cephalorun/cephalorun/solver"
)

// simulateFlags are the flags of simulate alone.
type simulateFlags struct {
	cluster, model, profile, chart string
	batch                          batchSize
}

func newSimulateCommand(a *app, o *options) *cobra.Command {
	var f simulateFlags
	c := &cobra.Command{
		Use:   "simulate --cluster FILE (--model FILE | --profile FILE) --global-batch N [flags]",
		Short: "Predict what a model would do on a cluster that is not here",
		Long: `Compare strategies on a cluster described by a file: samples per second, memory and the share
of the time that devices compute. Devices come from a catalogue of GPUs; with --profile, what
was measured wins. --global-batch auto finds the batch with the most samples per second.
` + exitHelp,
		Example: "  cephalorun simulate --cluster examples/clusters/paper-a.yaml --model examples/models/gpt-2.7b.yaml --global-batch 64 --chart chart.svg",
		Args:    exactArgs(cobra.NoArgs),
		RunE:    func(*cobra.Command, []string) error { return simulate(a, o, f) },
	}
	c.Flags().StringVar(&f.cluster, "cluster", "", "the cluster: nodes, GPUs by name, links (YAML)")
	c.Flags().StringVar(&f.model, "model", "", "the model by its measures (YAML)")
	c.Flags().StringVar(&f.profile, "profile", "", "a model that was measured (profile, JSON)")
	c.Flags().StringVar(&f.chart, "chart", "", "write a bar chart to this file, .svg or .html")
	c.Flags().Var(&f.batch, "global-batch", fmt.Sprintf("samples of one step on all devices together, at most %d, or auto", solver.MostSamples))
	return c
}

// simulation is the result as JSON.
type simulation struct {
	Cluster     string          `json:"cluster"`
	Model       string          `json:"model"`
	DType       string          `json:"dtype,omitempty"`
	Devices     int             `json:"devices"`
	GlobalBatch int             `json:"global_batch"`
	Notes       []string        `json:"notes"`
	Strategies  []outcomeRecord `json:"strategies"`
	Curve       []curvePoint    `json:"curve,omitempty"`

	operations float64
}

func simulate(a *app, o *options, f simulateFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	s, problem, err := f.estimate()
	if err != nil {
		return err
	}
	if f.batch.auto() {
		plan, curve, err := solver.SolveAuto(problem, orchestrator.MostBatch(len(problem.Devices)))
		if err != nil {
			return err
		}
		problem.GlobalBatch, s.Curve = plan.GlobalBatch, curveRecords(curve)
	}
	s.GlobalBatch = problem.GlobalBatch
	list, err := solver.Compare(problem)
	if err != nil {
		return err
	}
	s.Strategies = outcomeRecords(list)
	if f.chart != "" {
		if err := writeChart(f.chart, s, list); err != nil {
			return err
		}
	}
	if o.json {
		return printJSON(a.stdout, s)
	}
	return printText(a.stdout, s.text(list, a.screen))
}

func (f simulateFlags) check() error {
	switch {
	case f.cluster == "":
		return fmt.Errorf("%w: simulate needs --cluster FILE", orchestrator.ErrUsage)
	case (f.model == "") == (f.profile == ""):
		return fmt.Errorf("%w: simulate needs either --model FILE or --profile FILE", orchestrator.ErrUsage)
	case f.batch == 0:
		return fmt.Errorf("%w: simulate needs --global-batch N, or auto", orchestrator.ErrUsage)
	}
	if f.chart != "" {
		_, err := chartFormat(f.chart)
		return err
	}
	return nil
}

// read reads the files, all of them, so that what is wrong is said at once.
func (f simulateFlags) read() (measured profiler.Profile, model estimate.Model, cluster estimate.Cluster, err error) {
	var names []string
	if f.profile != "" {
		if measured, err = orchestrator.ReadProfileFile(f.profile); err != nil {
			names = []string{estimate.AnyGPU}
		}
	} else {
		model, err = estimate.ReadModel(f.model)
	}
	for _, d := range measured.Devices {
		names = append(names, d.Name)
	}
	cluster, clusterErr := estimate.ReadCluster(f.cluster, names)
	switch {
	case err == nil:
		err = clusterErr
	case clusterErr != nil:
		err = fmt.Errorf("%w\n%w", err, clusterErr)
	}
	return measured, model, cluster, err
}

// estimate makes the problem of the files.
func (f simulateFlags) estimate() (simulation, solver.Problem, error) {
	var s simulation
	measured, model, cluster, err := f.read()
	if err != nil {
		return s, solver.Problem{}, err
	}
	s.Notes = []string{}
	for _, doubt := range measured.Doubts() {
		s.Notes = append(s.Notes, f.profile+": "+doubt)
	}
	var p profiler.Profile
	var notes []string
	if f.profile != "" {
		if p, notes, err = estimate.FromProfile(cluster, measured); err != nil {
			return s, solver.Problem{}, err
		}
	} else {
		p, notes = estimate.FromModel(cluster, model)
		s.operations = model.Operations()
	}
	s.Notes = append(s.Notes, notes...)
	s.Cluster, s.Model, s.DType, s.Devices = cluster.Name, p.Model.Name, p.Model.DType, len(p.Devices)
	batch := int(f.batch)
	if f.batch.auto() {
		batch = 1
	}
	problem, err := orchestrator.ProblemOf(p, batch)
	if err != nil {
		return s, solver.Problem{}, err
	}
	addOffload(problem, cluster.Hosts())
	links := cluster.Links()
	problem.Links = &solver.Links{NodeOf: links.NodeOf, Inside: links.Inside, Between: links.Between}
	return s, problem, nil
}

func (s simulation) text(list []solver.Outcome, screen bool) string {
	text := fmt.Sprintf("%s on %s: %s, global batch %d", s.Model, s.Cluster, show.Count(s.Devices, "device"), s.GlobalBatch)
	if s.DType != "" {
		text += ", " + s.DType
	}
	text += "\n"
	for _, note := range s.Notes {
		text += "note: " + note + "\n"
	}
	return text + curveText(s.Curve) + show.Strategies(list, s.operations, screen)
}

// addOffload says what moving a unit's inputs to host memory takes.
func addOffload(p solver.Problem, hosts []estimate.Host) {
	for i, h := range hosts {
		p.Devices[i].HostMemoryBytes = h.MemoryBytes
		for class, c := range p.Devices[i].Costs {
			c.OffloadMsPerSample = (c.KeptBytesPerSample[solver.Recompute] - c.KeptBytesPerSample[solver.Offload]) / h.Speed
			p.Devices[i].Costs[class] = c
		}
	}
}
