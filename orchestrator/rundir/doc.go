// Package rundir owns the state folder: one folder for each run, the newest of them
// under the name latest, and files that appear whole or not at all.
//
//	STATE/profiles/<fingerprint>.json
//	STATE/runs/latest -> <id>
//	STATE/runs/<id>/{run.json, status.json, plan.json, profile.json, devices.json,
//	                 shim.py, pyshim/, events.jsonl, logs/rank-N.log, measure/,
//	                 checkpoints/, report.json, report.html}
//
// The run's owner holds a lock on its folder; run.json says who that is.
//
// The package imports nothing else of the project.
package rundir
