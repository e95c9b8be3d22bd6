// Package virtual reads a devices file: what to use in place of the devices
// that are there. A virtual device is a part of a real one, with a limit on
// memory, on multiprocessors or on threads, or with a slowdown.
//
//	devices:
//	  - { name: big,  kind: cuda, index: 0, sm_percent: 40, memory: 40GiB }
//	  - { name: slow, kind: cpu, threads: 1, memory: 1GiB, slowdown: 3 }
//
// Reading is strict, and everything that is wrong is reported at once with the
// path of the field. Resolve then lays the file over the real devices.
package virtual
