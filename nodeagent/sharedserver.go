package nodeagent

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// SharedServer serves the HTTP API of all agents of a process. It listens on no
// port: the nodes' addresses are made up, and so are the connections to them,
// which Dial makes in memory. What is spoken over them is the same HTTPS, with
// the same certificates, as on real nodes.
type SharedServer struct {
	kubelet kubeletconfig.KubeletConfiguration
	dialled *memoryListener

	mu     sync.RWMutex // protects the field below
	agents map[string]*Agent
}

// NewSharedServer makes a server; Run serves. Of the configuration it needs
// certificate, key and client CA.
func NewSharedServer(kubelet kubeletconfig.KubeletConfiguration) *SharedServer {
	return &SharedServer{kubelet: kubelet, agents: map[string]*Agent{}, dialled: &memoryListener{conns: make(chan net.Conn), closed: make(chan struct{})}}
}

// Run serves until ctx ends.
func (s *SharedServer) Run(ctx context.Context) error {
	certs, err := serverTLS(s.kubelet)
	if err != nil {
		return err
	}
	return serveOn(ctx, s.dialled, s, certs)
}

// Dial connects to the agent of the node that has the address.
func (s *SharedServer) Dial(ctx context.Context, _, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	client, server := net.Pipe()
	select {
	case s.dialled.conns <- memoryConn{server, nodeAddress(host)}:
		return client, nil
	case <-s.dialled.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// ServeHTTP passes a request to the agent whose node was dialled. The request's
// own host does not count: proxies on the way leave it as the caller wrote it.
func (s *SharedServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	address, _ := r.Context().Value(http.LocalAddrContextKey).(nodeAddress)
	s.mu.RLock()
	agent := s.agents[string(address)]
	s.mu.RUnlock()
	if agent == nil {
		http.Error(w, fmt.Sprintf("no node agent runs at %q", string(address)), http.StatusServiceUnavailable)
		return
	}
	agent.handler().ServeHTTP(w, r)
}

// serveShared has the shared server serve this agent too until ctx ends.
func (a *Agent) serveShared(ctx context.Context) error {
	s := a.cfg.Server
	s.mu.Lock()
	s.agents[a.cfg.NodeIP] = a
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.agents, a.cfg.NodeIP)
	return nil
}

// memoryListener accepts connections that are made in this process.
type memoryListener struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

// Accept implements net.Listener.
func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *memoryListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *memoryListener) Addr() net.Addr { return nodeAddress("all") }

// memoryConn knows which node it was made to.
type memoryConn struct {
	net.Conn
	local nodeAddress
}

// LocalAddr implements net.Conn.
func (c memoryConn) LocalAddr() net.Addr { return c.local }

// nodeAddress is a made-up address of a node.
type nodeAddress string

// Network implements net.Addr.
func (nodeAddress) Network() string { return "simulated" }

// String implements net.Addr.
func (a nodeAddress) String() string { return string(a) }
