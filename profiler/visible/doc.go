// Package visible answers which devices CUDA_VISIBLE_DEVICES lets through, and
// in which order CUDA counts them, so that workers can be given UUIDs.
//
// Accepted, separated by commas and with spaces around them: indexes, GPU-…
// and MIG-… UUIDs and their unique beginnings; -1 ends the list. Unset means
// all devices, empty means none. What CUDA would drop in silence (an index
// too high, a device twice) is an error here.
//
// Pure: the environment is handed in.
package visible
