// Package why answers "why is this not running?" with one chain of evidence:
//
//	quota -> admission -> controller -> scheduling -> volumes -> sandbox ->
//	image -> start -> probes -> endpoints
//
// Each link is ok, waiting, broken or not reached, with what it was read from
// (an event, a condition, a status, another object) and, where it is broken, the
// way to mend it. The order is that in which a pod passes them.
//
// Explain makes the chain of one object; Find looks for all troubles, one line
// for a workload however many pods it has. Both read through a Reader, which
// has the rights of whoever is asking: what they may not read is part of the
// answer, as a finding of its own. There is one Reader over a server's cache and
// one over a client, so that the answers are the same anywhere; the rules know
// neither.
//
// Blast tells what goes with what is deleted, WhoCan and Rights who may do what.
//
// Findings are codes with parameters. The sentences are in the catalogues of the
// faces (web/app/src/i18n/why.*.ts); the cluster's own words are kept as
// evidence. workload.go has the chain of each kind, pod.go and its neighbours
// the links.
package why
