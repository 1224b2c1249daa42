// Package scripts holds the stories that users of the command line live through,
// as testscript files with the real kubectl: testdata/simulated on a simulated
// cluster; commands, workloads and crash, in this order, on one with real
// containers (which needs root).
//
// Beside testscript's own, a story has the commands
//
//	await DURATION REGEXP COMMAND...   until the output matches; `! await`: no longer matches
//	get ADDRESS                        the body at http://ADDRESS, with a second's patience
//
// and the programs orrery, kubectl (orrery's own, or make e2e KUBECTL=PATH) and
// etcdctl.
package scripts
