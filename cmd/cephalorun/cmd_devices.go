package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/cephalorun/cephalorun/orchestrator"
	"github.com/cephalorun/cephalorun/orchestrator/show"
	"github.com/cephalorun/cephalorun/profiler"
)

func newDevicesCommand(a *app, o *options) *cobra.Command {
	c := &cobra.Command{
		Use:   "devices [flags]",
		Short: "List the devices that a run would use",
		Long: `List devices in the order of their ranks: memory, capability, types, link, and what others use
of them. CUDA_VISIBLE_DEVICES is honoured; --devices describes others in place of what is there.
` + exitHelp,
		Example: "  cephalorun devices\n  cephalorun devices --devices devices.yaml --json",
		Args:    exactArgs(cobra.NoArgs),
		RunE:    func(c *cobra.Command, _ []string) error { return listDevices(c.Context(), a, o) },
	}
	o.addDevices(c.Flags())
	return c
}

// deviceList is the list as JSON.
type deviceList struct {
	Devices []profiler.Device `json:"devices"`
	LeftOut []profiler.Device `json:"left_out"`
	Notes   []string          `json:"notes"`
}

func listDevices(ctx context.Context, a *app, o *options) error {
	found, err := orchestrator.DeviceFinder{Spec: o.devices, Environ: a.environ, GPUs: a.gpus, CPU: a.cpu}.Find(ctx)
	if err != nil {
		return err
	}
	if o.json {
		return printJSON(a.stdout, deviceList{Devices: found.Chosen, LeftOut: found.LeftOut, Notes: found.Notes})
	}
	return printText(a.stdout, show.Devices(found.Chosen, found.LeftOut, found.Notes))
}
