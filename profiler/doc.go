// Package profiler owns what cephalorun knows about devices and about what a
// model costs on them: the Device type and the Provider that lists devices,
// the rules on compute capability and data types, and the profile file
// (version 1) with its reader, writer and checks.
//
// It is a leaf: standard library only. Around it stand
//
//	profiler/nvml     devices from NVML (cgo; only cephalorun-nvml links it)
//	profiler/rpc      the plugin seam between the supervisor and cephalorun-nvml
//	profiler/cpu      the host's processor and memory as one device
//	profiler/virtual  devices described by a YAML file
//	profiler/yamlmap   YAML files read field by field
//	profiler/estimate  GPUs, clusters and models from files: profiles without measuring
//	profiler/fleet    devices described by a JSON file: made-up fleets
//	profiler/visible  CUDA_VISIBLE_DEVICES in all its forms
//	profiler/measure  measurement files of a profiling run, merged into a profile
//	profiler/cache    fingerprints and the profiles kept under the state folder
//
// A device is named by its UUID everywhere. Index is what a person reads off a
// listing; CUDA and NVML count differently, so nothing is decided by it.
package profiler
