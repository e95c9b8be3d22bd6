package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/cephalorun/cephalorun/pyshim"
)

func newVersionCommand(a *app, o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Long:    "Print the version of the program and of the Python package inside it.\n" + exitHelp,
		Example: "  cephalorun version --json",
		Args:    exactArgs(cobra.NoArgs),
		RunE:    func(*cobra.Command, []string) error { return printVersion(a, o) },
	}
}

// version is set by the build (make build); empty when built by go install.
var version string

// versions is the version as JSON.
type versions struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
	Package string `json:"package"`
}

func printVersion(a *app, o *options) error {
	hash, err := pyshim.Hash()
	if err != nil {
		return err
	}
	v := versions{Version: "unknown", Package: hash}
	if info, ok := debug.ReadBuildInfo(); ok {
		v.Version, v.Go = info.Main.Version, info.GoVersion
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v.Commit = s.Value
			}
		}
	}
	if version != "" {
		v.Version = version
	}
	if o.json {
		return printJSON(a.stdout, v)
	}
	return printText(a.stdout, fmt.Sprintf("cephalorun %s (%s), Python package %.19s\n", v.Version, v.Go, v.Package))
}
