package sshd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gdamore/tcell/v2"
	"golang.org/x/crypto/ssh"
)

const (
	// writeWithin is how long a client may take to read before it is given up.
	writeWithin = time.Minute
	// What a client may tell of its environment, and how large its terminal may be:
	// a cell takes memory here.
	variablesMost, variableMost = 32, 256
	columnsMost, rowsMost       = 800, 250
)

// Session is a terminal at the other end of a connection. It is a tcell.Tty:
// between Start and Stop, what is typed there can be read.
type Session struct {
	Identity
	// Command is what follows the host in `ssh -t HOST COMMAND`.
	Command string

	channel     ssh.Channel
	hangUp      func()
	environment map[string]string
	input       chan []byte // what is typed, as it comes; closed at the end
	gone        atomic.Bool // so is the user

	mu      sync.Mutex // protects the fields below
	size    tcell.WindowSize
	resized func()
	over    chan struct{} // closed when reading is
	rest    []byte        // read, but not asked for
}

// session takes a session through its life.
func (c *connection) session(ctx context.Context, asked ssh.NewChannel) {
	channel, requests, err := asked.Accept()
	if err != nil {
		return
	}
	s := &Session{Identity: c.who, channel: channel, hangUp: func() { _ = c.Close() }, environment: map[string]string{}, input: make(chan []byte), over: make(chan struct{})}
	close(s.over) // until Start
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	started := false
	for r := range requests { // ends with the channel, or the connection
		begins := !started && (r.Type == "shell" || r.Type == "exec")
		_ = r.Reply(s.grant(r, started), nil)
		if begins {
			started = true
			work.Go(func() { s.listen(ctx) })
			work.Go(func() { c.run(ctx, s) })
		}
	}
}

// run runs the program in a session and tells the client how it ended.
func (c *connection) run(ctx context.Context, s *Session) {
	log := c.Log.With("user", s.User, "key", ssh.FingerprintSHA256(c.key), "remote", c.RemoteAddr().String())
	log.Info("console opened")
	err := c.program(ctx, s)
	log.Info("console closed", "err", err)
	var status struct{ Code uint32 }
	if err != nil {
		status.Code = 1
		defer s.soon()()
		why := err.Error()
		if c.Tell != nil {
			why = c.Tell(s, err)
		}
		fmt.Fprintf(s.channel.Stderr(), "orrery: %s\r\n", why)
	}
	_, _ = s.channel.SendRequest("exit-status", false, ssh.Marshal(status))
	_ = s.channel.Close()
}

// program is the edge at which a console that breaks down takes no other along.
func (c *connection) program(ctx context.Context, s *Session) (err error) {
	defer func() {
		if broken := recover(); broken != nil {
			c.Log.Error("console broke down", "err", broken, "stack", string(debug.Stack()))
			err = errors.New("the console broke down; its log says more")
		}
	}()
	if s.Getenv("TERM") == "" {
		return errors.New("the console needs a terminal: ssh -t")
	}
	err = c.Program(ctx, s)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	if s.gone.Load() { // what it says of that is no news
		return nil
	}
	return err
}

// grant does what a client asks of its session, and says whether it may.
func (s *Session) grant(r *ssh.Request, started bool) bool {
	switch r.Type {
	case "window-change":
		var size struct{ Columns, Rows, Width, Height uint32 }
		if ssh.Unmarshal(r.Payload, &size) != nil {
			return false
		}
		s.resize(size.Columns, size.Rows)
		return true
	case "pty-req":
		var terminal struct {
			Term                         string
			Columns, Rows, Width, Height uint32
			Modes                        string
		}
		if started || ssh.Unmarshal(r.Payload, &terminal) != nil || len(terminal.Term) > variableMost {
			return false
		}
		s.environment["TERM"] = terminal.Term
		s.resize(terminal.Columns, terminal.Rows)
		return true
	case "env":
		var variable struct{ Name, Value string }
		if started || ssh.Unmarshal(r.Payload, &variable) != nil || len(variable.Value) > variableMost || len(s.environment) >= variablesMost {
			return false
		}
		if !slices.Contains([]string{"LANG", "LANGUAGE", "COLORTERM", "COLORFGBG", "NO_COLOR"}, variable.Name) && !strings.HasPrefix(variable.Name, "LC_") {
			return false
		}
		s.environment[variable.Name] = variable.Value
		return true
	case "exec":
		var command struct{ Line string }
		if started || ssh.Unmarshal(r.Payload, &command) != nil {
			return false
		}
		s.Command = command.Line
		return true
	case "shell":
		return !started
	}
	return false // subsystems, agents, displays
}

// Getenv is what the client told of its environment. One that tells nothing of
// its language writes UTF-8.
func (s *Session) Getenv(name string) string {
	if name == "LANG" && s.environment[name] == "" {
		return "C.UTF-8"
	}
	return s.environment[name]
}

func (s *Session) resize(columns, rows uint32) {
	s.mu.Lock()
	s.size = tcell.WindowSize{Width: 80, Height: 24}
	if columns > 0 && rows > 0 {
		s.size = tcell.WindowSize{Width: int(min(columns, columnsMost)), Height: int(min(rows, rowsMost))}
	}
	resized := s.resized
	s.mu.Unlock()
	if resized != nil {
		resized()
	}
}

// listen hands on what is typed.
func (s *Session) listen(ctx context.Context) {
	defer close(s.input)
	for {
		piece := make([]byte, 4096)
		n, err := s.channel.Read(piece)
		if n > 0 {
			select {
			case s.input <- piece[:n]:
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			s.gone.Store(true)
			return
		}
	}
}

// Start implements tcell.Tty.
func (s *Session) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = make(chan struct{})
	return nil
}

// Drain implements tcell.Tty: it ends a read.
func (s *Session) Drain() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.over:
	default:
		close(s.over)
	}
	return nil
}

// Stop implements tcell.Tty.
func (s *Session) Stop() error { return s.Drain() }

// Close implements tcell.Tty; the session ends with its program.
func (s *Session) Close() error { return nil }

// NotifyResize implements tcell.Tty.
func (s *Session) NotifyResize(resized func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resized = resized
}

// WindowSize implements tcell.Tty.
func (s *Session) WindowSize() (tcell.WindowSize, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size, nil
}

// Read implements tcell.Tty.
func (s *Session) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	over := s.over
	for len(s.rest) == 0 {
		s.mu.Unlock()
		var piece []byte
		var more bool
		select {
		case <-over:
			s.mu.Lock()
			return 0, os.ErrDeadlineExceeded
		case piece, more = <-s.input:
		}
		s.mu.Lock()
		if !more {
			return 0, io.EOF
		}
		s.rest = append(s.rest, piece...)
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// Write implements tcell.Tty. It waits for the client to read, and nothing is kept
// for it meanwhile.
func (s *Session) Write(p []byte) (int, error) {
	defer s.soon()()
	return s.channel.Write(p)
}

// soon gives a client up that does not read what is written before done is called.
func (s *Session) soon() (done func()) {
	late := time.AfterFunc(writeWithin, s.hangUp)
	return func() { late.Stop() }
}
