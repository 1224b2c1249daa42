package simulate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	crilogs "k8s.io/cri-client/pkg/logs"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// Streams serves exec and attach for all runtimes of a process, as a runtime's
// streaming server does: on the loopback, at addresses that work once.
type Streams struct {
	server   streaming.Server
	listener net.Listener
	sessions sync.WaitGroup
	closed   chan struct{} // ends all sessions

	mu       sync.Mutex // protects the field below
	runtimes map[string]*Runtime
}

// NewStreams listens; Run serves.
func NewStreams() (*Streams, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("streams of simulated containers: %w", err)
	}
	s := &Streams{listener: listener, closed: make(chan struct{}), runtimes: map[string]*Runtime{}}
	config := streaming.DefaultConfig
	config.BaseURL = &url.URL{Scheme: "http", Host: listener.Addr().String()}
	if s.server, err = streaming.NewServer(config, s); err != nil {
		return nil, fmt.Errorf("streams of simulated containers: %w", err)
	}
	return s, nil
}

// Add gives a runtime's containers streams.
func (s *Streams) Add(r *Runtime) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runtimes[r.addresses.String()] = r
	r.mu.Lock()
	defer r.mu.Unlock()
	r.streams = s
}

// Run serves until ctx ends, and ends the sessions then.
func (s *Streams) Run(ctx context.Context) error {
	srv := &http.Server{Handler: s.server, ReadHeaderTimeout: 30 * time.Second}
	stop := context.AfterFunc(ctx, func() {
		close(s.closed)
		srv.Close()
	})
	defer stop()
	err := srv.Serve(s.listener)
	s.sessions.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// scope makes an id tell whose it is; unscope finds the container.
func (r *Runtime) scope(id string) string { return r.addresses.String() + " " + id }

func (s *Streams) unscope(scoped string) (*Runtime, *container, error) {
	owner, id, _ := strings.Cut(scoped, " ")
	s.mu.Lock()
	r := s.runtimes[owner]
	s.mu.Unlock()
	if r == nil {
		return nil, nil, status.Errorf(codes.NotFound, "container %q: not found", id)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.find(id)
	if err == nil && c.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		err = status.Errorf(codes.FailedPrecondition, "container %q does not run", id)
	}
	return r, c, err
}

// Exec implements streaming.Runtime: it runs a command in the pretended shell.
func (s *Streams) Exec(_ context.Context, scoped string, cmd []string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	r, c, err := s.unscope(scoped)
	if err != nil {
		return err
	}
	return s.session(r, c, cmd, in, out, errOut, tty, resize)
}

// Attach implements streaming.Runtime. A container that reads a terminal is a
// shell; of any other one sees the log as it is written.
func (s *Streams) Attach(ctx context.Context, scoped string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	r, c, err := s.unscope(scoped)
	if err != nil {
		return err
	}
	if in != nil && c.config.Stdin && tty {
		return s.session(r, c, []string{"sh"}, in, out, errOut, tty, resize)
	}
	if out == nil {
		out = discard{io.Discard}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	s.sessions.Go(func() {
		select {
		case <-s.closed:
			cancel()
		case <-stop:
		}
	})
	none := int64(0)
	return r.ReadLog(ctx, c.id, &crilogs.LogOptions{Follow: true, TailLines: &none}, out, out)
}

// session runs a shell until it, its container or the server ends.
func (s *Streams) session(r *Runtime, c *container, cmd []string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	if out == nil {
		out = discard{io.Discard}
	}
	if errOut == nil {
		errOut = out
	}
	over := make(chan struct{})
	defer close(over)
	sized := make(chan struct{})
	var typed *io.PipeReader
	if in != nil {
		var pump *io.PipeWriter
		typed, pump = io.Pipe()
		// It ends at the latest when the caller closes the connection, which
		// is as soon as we return.
		s.sessions.Go(func() {
			if tty {
				// A client sends its size ahead of the first key, but the two
				// come by channels of their own. Some client sends none.
				select {
				case <-sized:
				case <-over:
				case <-time.After(time.Second):
				}
			}
			_, err := io.Copy(pump, in)
			pump.CloseWithError(err)
		})
		defer typed.Close()
	}
	sh := r.shell(c, out, errOut, tty)
	s.sessions.Go(func() {
		first := sync.OnceFunc(func() { close(sized) })
		for {
			select {
			case size, ok := <-resize:
				if ok {
					sh.resize(int(size.Width), int(size.Height))
				} else {
					resize = nil // no more sizes
				}
				first()
				continue
			case <-over:
			case <-c.done:
				sh.kill()
			case <-s.closed:
				sh.kill()
			}
			if typed != nil {
				typed.Close()
			}
			return
		}
	})
	if typed == nil {
		return sh.run(cmd, nil)
	}
	return sh.run(cmd, typed)
}

// PortForward implements streaming.Runtime: there is nothing to forward to.
func (s *Streams) PortForward(context.Context, string, int32, io.ReadWriteCloser) error {
	return errNoPort
}

// discard is where output goes that nobody wants.
type discard struct{ io.Writer }

func (discard) Close() error { return nil }

// errNoProcess is the honest answer to whoever wants to talk to a process, and
// errNoPort to whoever wants to talk to a port.
var (
	errNoProcess = errors.New("this container is simulated: there is no process to talk to")
	errNoPort    = errors.New("this pod is simulated: nothing listens on its ports")
)

// streaming returns the server of streams, or says that there is none.
func (r *Runtime) streaming() (*Streams, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.streams == nil {
		return nil, errNoProcess
	}
	return r.streams, nil
}

// Exec prepares a session in the pretended shell.
func (r *Runtime) Exec(_ context.Context, req *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	s, err := r.streaming()
	if err != nil {
		return nil, err
	}
	return s.server.GetExec(&runtimeapi.ExecRequest{ContainerId: r.scope(req.ContainerId), Cmd: req.Cmd, Tty: req.Tty, Stdin: req.Stdin, Stdout: req.Stdout, Stderr: req.Stderr})
}

// Attach prepares a connection to a container.
func (r *Runtime) Attach(_ context.Context, req *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	s, err := r.streaming()
	if err != nil {
		return nil, err
	}
	return s.server.GetAttach(&runtimeapi.AttachRequest{ContainerId: r.scope(req.ContainerId), Tty: req.Tty, Stdin: req.Stdin, Stdout: req.Stdout, Stderr: req.Stderr})
}

// PortForward prepares a connection that will say that there is no port.
func (r *Runtime) PortForward(_ context.Context, req *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	s, err := r.streaming()
	if err != nil {
		return nil, errNoPort
	}
	return s.server.GetPortForward(req)
}
