// Package client is how every part of orrery, and both faces, talk to an API
// server, ours or upstream's: configuration, leader election, events, and the
// client of the row protocol.
package client
