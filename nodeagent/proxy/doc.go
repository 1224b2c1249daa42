// Package proxy is kube-proxy: it makes Services reachable on a node.
//
// Services, EndpointSlices and the node's own object are watched (watch.go). At
// a change, Build (table.go, endpoints.go) turns them into routes: which
// addresses and ports lead to which endpoints, by which rules. That is the
// decision, pure and the same for every mode. A mode renders routes into the
// kernel's words, and sends only what differs from the last time, in one
// transaction: nftables.go (the default: maps, so that the number of Services
// does not slow a connection down) and iptables.go.
//
// Both speak text to the distribution's nft or iptables-restore: what they say
// is what an operator reads with `nft list ruleset`, and the text is what the
// golden tests compare. In a container, which has no such programs, they are run
// from the host's root (tools.go). Names of tables, chains and the mark are
// upstream's, so that either proxy takes over cleanly from the other.
//
// Beside the rules: connections of UDP clients whose endpoint is gone are
// forgotten (conntrack.go), and load balancers are told where local endpoints
// are (health.go).
package proxy
