package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
)

// cniEnv makes this test binary the CNI plugin instead.
const cniEnv = "ORRERY_TEST_CNI"

func TestMain(m *testing.M) {
	if os.Getenv(cniEnv) != "" {
		os.Exit(cniMain())
	}
	os.Exit(m.Run())
}

// runtimeCalls calls the CNI plugin as a runtime on a node would.
type runtimeCalls struct {
	t    *testing.T
	node ns.NetNS
	data string
}

func (p runtimeCalls) call(command, id string, pod ns.NetNS, extra string) ([]byte, error) {
	p.t.Helper()
	stdin := fmt.Sprintf(`{"cniVersion":"1.1.0","name":"test","type":"orrery-cni","podCIDR":"10.99.1.0/24","clusterCIDR":"10.99.0.0/16","dataDir":%q%s}`, p.data, extra)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), cniEnv+"=1", "CNI_COMMAND="+command, "CNI_CONTAINERID="+id, "CNI_IFNAME=eth0", "CNI_PATH=/nowhere")
	if pod != nil {
		cmd.Env = append(cmd.Env, fmt.Sprintf("CNI_NETNS=/proc/%d/fd/%d", os.Getpid(), pod.Fd()))
	}
	cmd.Stdin = strings.NewReader(stdin)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	// The plugin acts on the node's network: the one of the thread it starts from.
	err := p.node.Do(func(ns.NetNS) error { return cmd.Run() })
	if err != nil {
		return nil, errors.New(out.String() + stderr.String())
	}
	return out.Bytes(), nil
}

func (p runtimeCalls) add(id string, extra string) (ns.NetNS, string) {
	p.t.Helper()
	pod := newNS(p.t)
	out, err := p.call("ADD", id, pod, extra)
	if err != nil {
		p.t.Fatal(err)
	}
	var result current.Result
	if err := json.Unmarshal(out, &result); err != nil {
		p.t.Fatal(err)
	}
	return pod, result.IPs[0].Address.IP.String()
}

func newNS(t *testing.T) ns.NetNS {
	t.Helper()
	made, err := ns.TempNetNS()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = made.Close() })
	return made
}

// serve answers connections to port 8080 with the address that they come from.
func serve(t *testing.T, where ns.NetNS) {
	t.Helper()
	err := where.Do(func(ns.NetNS) error {
		l, err := net.Listen("tcp4", ":8080")
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
				_, _ = io.WriteString(c, host)
				_ = c.Close()
			}
		}()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// seen is the address as which from appears at to.
func seen(from ns.NetNS, to string) string {
	var text []byte
	err := from.Do(func(ns.NetNS) error {
		c, err := net.DialTimeout("tcp4", to, 2*time.Second)
		if err != nil {
			return err
		}
		defer c.Close()
		text, err = io.ReadAll(c)
		return err
	})
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func TestPodNetwork(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: makes network namespaces")
	}
	p := runtimeCalls{t, newNS(t), t.TempDir()}
	outside := newNS(t)
	must(t, p.node.Do(func(ns.NetNS) error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "out"
		veth := netlink.NewVeth(attrs)
		veth.PeerName, veth.PeerNamespace = "eth0", netlink.NsFd(outside.Fd())
		return errors.Join(netlink.LinkSetUp(lo), netlink.LinkAdd(veth), give("out", "192.168.7.1/24"))
	}))
	must(t, outside.Do(func(ns.NetNS) error {
		// It knows no way to the pods' addresses, as the world would not.
		return give("eth0", "192.168.7.2/24")
	}))
	serve(t, outside)

	a, ipA := p.add("a", "")
	ports := `,"runtimeConfig":{"portMappings":[{"hostPort":9000,"containerPort":8080,"protocol":"tcp"},{"hostPort":9001,"containerPort":8080,"protocol":"tcp","hostIP":"192.168.7.1"},{"hostPort":9002,"containerPort":8080,"hostIP":"127.0.0.1"}]}`
	b, ipB := p.add("b", ports)
	serve(t, a)
	serve(t, b)
	if ipA != "10.99.1.2" || ipB != "10.99.1.3" {
		t.Errorf("addresses %s and %s", ipA, ipB)
	}
	for _, c := range []struct {
		story string
		from  ns.NetNS
		to    string
		want  string
	}{
		{"pod to pod", a, ipB + ":8080", ipA},
		{"node to pod", p.node, ipA + ":8080", "10.99.1.1"},
		{"pod to the world", a, "192.168.7.2:8080", "192.168.7.1"},
		{"host port from outside", outside, "192.168.7.1:9000", "192.168.7.2"},
		{"host port of one address", outside, "192.168.7.1:9001", "192.168.7.2"},
		{"host port from another pod", a, "192.168.7.1:9000", ipA},
		{"host port from the pod itself", b, "192.168.7.1:9000", "10.99.1.1"},
		{"host port from the node", p.node, "192.168.7.1:9000", "192.168.7.1"},
		{"host port on loopback", p.node, "127.0.0.1:9002", "10.99.1.1"},
		{"host port of loopback, on another address", outside, "192.168.7.1:9002", "refused"},
		{"pod itself through loopback", a, "127.0.0.1:8080", "127.0.0.1"},
	} {
		if got := seen(c.from, c.to); got != c.want && !(c.want == "refused" && strings.Contains(got, c.want)) {
			t.Errorf("%s: %s saw %q, want %q", c.story, c.to, got, c.want)
		}
	}

	if _, err := p.call("CHECK", "a", a, fmt.Sprintf(`,"prevResult":{"cniVersion":"1.1.0","ips":[{"address":"%s/32"}]}`, ipA)); err != nil {
		t.Errorf("check: %v", err)
	}
	if _, err := p.call("STATUS", "", nil, ""); err != nil {
		t.Errorf("status: %v", err)
	}
	for range 2 { // a runtime calls again until it is told that all is well
		if _, err := p.call("DEL", "b", b, ""); err != nil {
			t.Errorf("delete: %v", err)
		}
	}
	if got := seen(outside, "192.168.7.1:9000"); !strings.Contains(got, "refused") {
		t.Errorf("host port of a deleted pod: %s, want refused", got)
	}
	// The namespace may be gone before the runtime says so.
	_ = a.Close()
	if _, err := p.call("DEL", "a", nil, ""); err != nil {
		t.Errorf("delete without namespace: %v", err)
	}
	if _, err := p.call("GC", "", nil, `,"cni.dev/valid-attachments":[]`); err != nil {
		t.Errorf("garbage collection: %v", err)
	}
	left, err := os.ReadDir(p.data + "/test")
	must(t, err)
	for _, f := range left {
		if net.ParseIP(f.Name()) != nil {
			t.Errorf("address %s is still reserved", f.Name())
		}
	}
}

func TestBadConfiguration(t *testing.T) {
	for config, want := range map[string]string{
		`{`:                         "network configuration",
		`{"podCIDR":"10.0.0.0"}`:    "podCIDR",
		`{"podCIDR":"fd00::/64"}`:   "not an IPv4 range",
		`{"podCIDR":"10.0.0.0/24"}`: "dataDir",
		`{"podCIDR":"10.0.0.0/24","clusterCIDR":"x"}`: "clusterCIDR",
	} {
		if _, err := loadNetwork([]byte(config)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want a word about %s", config, err, want)
		}
	}
}

func give(name, addr string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	a, err := netlink.ParseAddr(addr)
	if err != nil {
		return err
	}
	return errors.Join(netlink.AddrAdd(link, a), netlink.LinkSetUp(link))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
