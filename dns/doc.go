// Package dns is the cluster's DNS server: Services and pods by name, as the
// Kubernetes DNS specification 1.1.0 has it, the rest forwarded and cached.
//
// It watches Services, EndpointSlices and Namespaces like any client
// (watch.go). A query is answered from those caches without any copy of them
// (zone.go: what is asked for; records.go: what to say), so an answer is never
// older than the watch and costs microseconds. What is outside the zone goes to
// forward.go, through cache.go.
//
// Before the first synchronisation, names that are known already are answered;
// of others it says SERVFAIL, which makes clients try again, rather than that
// they do not exist.
//
// Metrics bear CoreDNS's names, so that its dashboards and alerts work.
package dns
