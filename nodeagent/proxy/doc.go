// Package proxy is kube-proxy: table.go turns Services and EndpointSlices into
// routes (pure), and one file per mode renders them (iptables, nftables).
package proxy
