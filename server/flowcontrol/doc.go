// Package flowcontrol is API priority and fairness: no client, however busy, may
// keep the others from being served.
//
// A request enters through Controller.Enter. classify.go finds the first
// FlowSchema that matches it, and so its priority level; width.go estimates how
// many seats it takes; level.go lets it have them at once, lets it wait in one of
// the level's queues, or refuses it. The Pass that Enter returns says which; an
// admitted request gives its seats back by Pass.Leave.
//
// Seats are what the server's concurrency is counted in. shares.go divides them
// among the levels, and every ten seconds anew: what a level does not need, the
// others may borrow. controller.go holds the configuration, which is made of the
// stored objects by Configure; following them, and writing what Configure says
// of them, is left to the caller. defaults.go has the objects that a cluster
// begins with.
//
// A level's arithmetic is pure: it is told the time, and nothing in it waits.
package flowcontrol
