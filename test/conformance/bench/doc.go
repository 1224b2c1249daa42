// Package bench measures upstream's API server and ours side by side: each on an
// etcd of its own, in turns, several rounds in one go, with the same client and
// the same objects. make bench-compare runs it.
//
// measures_test.go lists what is measured. Every measure gives wall time and the CPU
// time that the server took meanwhile, from /proc: on a machine where client,
// server and etcd share the cores only the latter says much about the server.
// conn_test.go is the client, which speaks HTTP/2 frames itself and does not decode
// what it is sent, so that it takes little of the machine. report.go prints the
// result, and keeps it for make bench-report, which writes docs/bench.md.
package bench
