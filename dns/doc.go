// Package dns is the cluster's DNS server: Services and pods by name, the rest
// forwarded. It watches the API like any client.
package dns
