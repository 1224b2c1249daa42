package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const maxOutput = 10 << 10 // bytes of a response that are looked at

// exec passes when the command ends with 0.
func (s *Set) exec(ctx context.Context, t Target, command []string, timeout time.Duration) finding {
	ok, output, err := s.cfg.Exec(ctx, t.ID, expandCommand(command, t.Container.Env), timeout)
	return finding{ok: ok, output: output, err: err}
}

// expandCommand replaces $(NAME) by values that the container's spec gives
// literally.
func expandCommand(command []string, env []corev1.EnvVar) []string {
	var pairs []string
	for _, e := range env {
		if e.ValueFrom == nil {
			pairs = append(pairs, "$("+e.Name+")", e.Value)
		}
	}
	if len(pairs) == 0 {
		return command
	}
	r := strings.NewReplacer(pairs...)
	out := make([]string, len(command))
	for i, word := range command {
		out[i] = r.Replace(word)
	}
	return out
}

// probeHTTP passes on any status from 200 to 399. Redirects to another host
// are not followed: they pass with a warning upstream, and here.
func probeHTTP(ctx context.Context, t Target, get *corev1.HTTPGetAction, timeout time.Duration) finding {
	port, err := Port(get.Port, t.Container)
	if err != nil {
		return finding{err: err}
	}
	host := get.Host
	if host == "" {
		host = t.IP
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := Request(ctx, get, net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return finding{err: err}
	}
	client := http.Client{
		Transport: &http.Transport{
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true, DisableCompression: true, Proxy: nil,
		},
		CheckRedirect: func(next *http.Request, via []*http.Request) error {
			if next.URL.Hostname() != via[0].URL.Hostname() {
				return http.ErrUseLastResponse
			}
			if len(via) >= 10 {
				return errors.New("stopped after 10 redirects")
			}
			return nil
		},
	}
	resp, err := client.Do(req)
	if err != nil {
		return finding{output: err.Error()}
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxOutput))
	switch {
	case resp.StatusCode < 200 || resp.StatusCode >= 400:
		return finding{output: fmt.Sprintf("HTTP probe failed with statuscode: %d", resp.StatusCode)}
	case resp.StatusCode >= 300:
		return finding{ok: true, warning: true, output: "Probe terminated redirects, Response body: " + string(body)}
	}
	return finding{ok: true, output: string(body)}
}

// Request makes the request of an HTTP probe or hook to address.
func Request(ctx context.Context, get *corev1.HTTPGetAction, address string) (*http.Request, error) {
	u, err := url.Parse(get.Path)
	if err != nil {
		u = &url.URL{Path: get.Path}
	}
	u.Scheme, u.Host = strings.ToLower(string(get.Scheme)), address
	if u.Scheme == "" {
		u.Scheme = "http"
	}
	if !strings.HasPrefix(u.Path, "/") {
		u.Path = "/" + u.Path
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	for _, h := range get.HTTPHeaders {
		req.Header.Add(h.Name, h.Value)
		if strings.EqualFold(h.Name, "Host") {
			req.Host = h.Value
		}
	}
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", "kube-probe/1.37")
	}
	if req.Header.Get("Accept") == "" {
		req.Header.Set("Accept", "*/*")
	}
	return req, nil
}

// Port is a port by number, or by its name in the container.
func Port(p intstr.IntOrString, c *corev1.Container) (int, error) {
	n := p.IntValue()
	if p.Type == intstr.String {
		for _, named := range c.Ports {
			if named.Name == p.StrVal {
				n = int(named.ContainerPort)
			}
		}
	}
	if n <= 0 || n > 65535 {
		return 0, fmt.Errorf("invalid port number: %v", p.String())
	}
	return n, nil
}

// probeTCP passes when the port accepts a connection.
func probeTCP(ctx context.Context, t Target, tcp *corev1.TCPSocketAction, timeout time.Duration) finding {
	port, err := Port(tcp.Port, t.Container)
	if err != nil {
		return finding{err: err}
	}
	host := tcp.Host
	if host == "" {
		host = t.IP
	}
	d := net.Dialer{Timeout: timeout}
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return finding{output: err.Error()}
	}
	conn.Close()
	return finding{ok: true}
}

// probeGRPC passes when the standard health service says SERVING.
func probeGRPC(ctx context.Context, t Target, g *corev1.GRPCAction, timeout time.Duration) finding {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	address := net.JoinHostPort(t.IP, strconv.Itoa(int(g.Port)))
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUserAgent("kube-probe/1.37"), grpc.WithNoProxy())
	if err != nil {
		return finding{output: err.Error()}
	}
	defer conn.Close()
	service := ""
	if g.Service != nil {
		service = *g.Service
	}
	resp, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: service}, grpc.WaitForReady(true))
	fail := func(format string, args ...any) finding { return finding{output: fmt.Sprintf(format, args...)} }
	switch {
	case status.Code(err) == codes.Unimplemented:
		return fail("error: this server does not implement the grpc health protocol (grpc.health.v1.Health): %s", err)
	case status.Code(err) == codes.DeadlineExceeded:
		return fail("timeout: failed to connect service %q within %v: %s", address, timeout, err)
	case err != nil:
		return fail("error: health rpc probe failed: %s", err)
	case resp.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING:
		return fail("service unhealthy (responded with %q)", resp.GetStatus())
	}
	return finding{ok: true, output: "service healthy"}
}
