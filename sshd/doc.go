// Package sshd serves a program in the terminals of whoever comes by SSH: the
// console, which cmd hands in.
//
// A user is known by a public key and nothing else: the file of keys (keys.go)
// says who the owner of each is in the cluster. Run (server.go) accepts
// connections; each session on one (session.go) is a terminal of its own, in which
// the program runs until it or the user leaves. Nothing else is granted: no
// passwords, no forwarding, no files, no commands of this machine. A connection
// ends when its client no longer answers, when its key is taken out of the file,
// and when it is of no use; whatever it started has ended then, too.
package sshd
