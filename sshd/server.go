package sshd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

// Config is what a server is told.
type Config struct {
	HostKey ssh.Signer
	Keys    *Keys
	Log     *slog.Logger
	// Program runs in a session until the user leaves it or ctx ends.
	Program func(ctx context.Context, s *Session) error
	// Tell is an error in the words of a session's user; nil is English.
	Tell func(s *Session, err error) string
}

const (
	handshakeWithin = 20 * time.Second
	// handshakesMost may be under way: strangers hold no more than these.
	handshakesMost = 32
	// sessionsPerUser and sessionsMost are how many may be open.
	sessionsPerUser, sessionsMost = 8, 128
	// farewell is how long a session has to leave the terminal as it was.
	farewell = 2 * time.Second
)

var (
	// aliveEvery is how often a client is asked whether it is there, and aliveWithin
	// how long its answer may take; without a session it is left after two questions.
	aliveEvery, aliveWithin = 15 * time.Second, 30 * time.Second
)

// server has the sessions of all connections.
type server struct {
	Config
	ssh *ssh.ServerConfig

	mu   sync.Mutex     // protects the fields below, and those of connections
	open map[string]int // sessions of each user
	all  int
}

// Run serves until ctx ends; all sessions have ended when it returns.
func Run(ctx context.Context, cfg Config, l net.Listener) error {
	s := &server{Config: cfg, open: map[string]int{}}
	s.ssh = &ssh.ServerConfig{PublicKeyCallback: s.admit, ServerVersion: "SSH-2.0-orrery"}
	s.ssh.AddHostKey(cfg.HostKey)
	sessions, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer context.AfterFunc(ctx, func() {
		_ = l.Close()
		end(errors.New("the server of the consoles stops")) // which users are told
	})()
	var work sync.WaitGroup
	defer work.Wait()
	starting := make(chan struct{}, handshakesMost)
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err != nil { // such as too many open files
			s.Log.Warn("connection not accepted", "err", err)
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		select {
		case starting <- struct{}{}:
			work.Go(func() { s.serve(sessions, conn, func() { <-starting }) })
		default:
			_ = conn.Close()
		}
	}
}

type contextKey struct{}

// admit knows users by their keys.
func (s *server) admit(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
	who, ok := s.Keys.Find(key)
	if !ok {
		err := fmt.Errorf("nobody is known by the key %s", ssh.FingerprintSHA256(key))
		return nil, &ssh.BannerError{Err: err, Message: "orrery: " + err.Error() + " (" + key.Type() + ")\r\n"}
	}
	return &ssh.Permissions{ExtraData: map[any]any{contextKey{}: &connection{server: s, who: who, key: key}}}, nil
}

// connection is one of a user.
type connection struct {
	*server
	*ssh.ServerConn
	who      Identity
	key      ssh.PublicKey
	sessions int
}

// serve takes a connection through its life.
func (s *server) serve(ctx context.Context, raw net.Conn, settled func()) {
	_ = raw.SetDeadline(time.Now().Add(handshakeWithin))
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	conn, channels, requests, err := ssh.NewServerConn(raw, s.ssh)
	settled()
	stop()
	if err != nil {
		s.Log.Info("console refused", "remote", raw.RemoteAddr().String(), "err", err)
		return
	}
	_ = raw.SetDeadline(time.Time{})
	c := conn.Permissions.ExtraData[contextKey{}].(*connection)
	c.ServerConn = conn
	var work sync.WaitGroup
	defer work.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work.Go(func() { ssh.DiscardRequests(requests) })
	work.Go(func() { c.watch(ctx, cancel) })
	work.Go(func() {
		<-ctx.Done()
		time.AfterFunc(farewell, func() { _ = conn.Close() }) // if no session does earlier
		if c.idle() {
			_ = conn.Close()
		}
	})
	for channel := range channels { // ends with the connection
		if channel.ChannelType() != "session" {
			_ = channel.Reject(ssh.Prohibited, "there is only a console here: nothing is forwarded")
			continue
		}
		if why := c.enter(); why != "" {
			_ = channel.Reject(ssh.ResourceShortage, why)
			continue
		}
		work.Go(func() {
			defer c.leave(ctx)
			c.session(ctx, channel)
		})
	}
}

// watch closes the connection when the client is gone or of no use, and ends
// its sessions when the key is not the user's any more.
func (c *connection) watch(ctx context.Context, end context.CancelCauseFunc) {
	tick := time.NewTicker(aliveEvery)
	defer tick.Stop()
	for quiet := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if who, ok := c.Keys.Find(c.key); !ok || !who.Equal(c.who) {
			end(errors.New("this key was taken out of the console's file, or given to somebody else"))
			return
		}
		if quiet++; !c.idle() {
			quiet = 0
		}
		late := time.AfterFunc(aliveWithin, func() { _ = c.Close() })
		_, _, err := c.SendRequest("keepalive@openssh.com", true, nil)
		late.Stop()
		if err != nil || quiet >= 2 {
			_ = c.Close()
			return
		}
	}
}

// enter counts a session, or says why there may be no more.
func (c *connection) enter() (why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.open[c.who.User] >= sessionsPerUser:
		return fmt.Sprintf("you have %d consoles open already", sessionsPerUser)
	case c.all >= sessionsMost:
		return "there are too many consoles open"
	}
	c.count(1)
	return ""
}

// leave takes a session back; the last one takes along a connection that is to
// end.
func (c *connection) leave(ctx context.Context) {
	c.mu.Lock()
	c.count(-1)
	c.mu.Unlock()
	if ctx.Err() != nil && c.idle() {
		_ = c.Close()
	}
}

func (c *connection) count(n int) {
	c.sessions += n
	c.all += n
	if c.open[c.who.User] += n; c.open[c.who.User] == 0 {
		delete(c.open, c.who.User)
	}
}

func (c *connection) idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sessions == 0
}
