// Package rpc is the seam between the supervisor and the process that asks
// NVML: the handshake, the request and the reply, the server that
// cephalorun-nvml runs, and the client that starts it, asks once and ends it; its
// Reader keeps one for readings, and starts another when that fails.
//
// The plugin's standard output is the protocol; its log goes to standard error
// as JSON and comes out of the client's slog.Logger. Start and call have limits
// of their own. The plugin ends with its host however that ends: the kernel
// kills it (Linux), and it watches its parent besides.
package rpc
