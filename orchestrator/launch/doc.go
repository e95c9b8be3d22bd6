// Package launch says how torchrun is started: its arguments, the environment of the
// workers, the file that tells each worker its device, and CUDA MPS for parts of a
// GPU. Everything is a pure function of what is handed in, save the functions whose
// names say Read or Write.
//
// It imports profiler (for the types of devices) and rundir.
package launch
