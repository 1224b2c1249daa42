// Package differential sends the same requests to upstream's API server and to
// ours, each on an etcd of its own and without controllers, and compares the
// answers: code, headers that matter and body, with what is random or a time
// masked.
//
// cases/*.txt are requests written out (case.go has the format). objects.yaml has
// one full object of every kind: what every kind is asked (kinds_test.go) and the
// wrong values that each of its fields is given (sweep_test.go) come from there. In
// the end the metrics are compared, by name, type, labels and buckets.
// known.txt lists the differences that are meant, or not mended yet, with a reason
// each; any other fails the test, and so does one on the list that is gone.
//
// make differential runs it; DIFFERENTIAL_REPORT names a file for all differences
// found, known ones included.
package differential
