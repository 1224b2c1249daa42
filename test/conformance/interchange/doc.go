// Package interchange swaps parts: upstream's API server, scheduler and
// controller manager and ours run together in every combination, over simulated
// nodes, and the stories of its tests must end the same way whoever plays them.
//
// make interchange builds upstream's programs and runs it. Nothing needs root;
// everything listens on loopback and lives in directories of the test.
package interchange
