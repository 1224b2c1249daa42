package interchange

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Both API servers work on the same etcd, one after the other: each reads what
// the other wrote, to the letter, can change it, and would have written the same.
func TestStorage(t *testing.T) {
	s := newSetup(t)
	sets := map[maker]*objectSet{
		ours:      newObjectSet(t, s.pki, ours.String(), "10.96.200.1"),
		upstreams: newObjectSet(t, s.pki, upstreams.String(), "10.96.200.2"),
	}
	a := newAPI(t, s)

	// Ours first: it makes and reads its set.
	server := s.apiServer(ours)
	a.create(sets[ours])
	complete(t, a)
	written := a.settled()
	mine := s.encodings(t, "orrery")
	server.Stop()

	// Upstream's reads the same, changes it, and makes its own set.
	server = s.apiServer(upstreams)
	read := a.settled()
	same(t, "written by orrery, read by upstream", written.of("orrery"), read.of("orrery"))
	same(t, "what upstream does to the rest at its start", written.rest().lasting(), read.rest().lasting())
	a.touch(sets[ours], upstreams)
	a.create(sets[upstreams])
	written = a.settled()
	theirs := s.encodings(t, "upstream")
	server.Stop()

	// Ours reads both, and changes what upstream's wrote.
	server = s.apiServer(ours)
	read = a.settled()
	same(t, "written by upstream, read by orrery", written.of("upstream"), read.of("upstream"))
	same(t, "changed by upstream, read by orrery", written.of("orrery"), read.of("orrery"))
	same(t, "what orrery does to the rest at its start", written.rest().lasting(), read.rest().lasting())
	a.touch(sets[upstreams], ours)
	written = a.settled()
	server.Stop()

	server = s.apiServer(upstreams)
	read = a.settled()
	same(t, "changed by orrery, read by upstream", written.of("upstream"), read.of("upstream"))
	server.Stop()

	same(t, "the same objects, made by orrery and by upstream", untouched(read.of("orrery").alike(t, "orrery")), untouched(read.of("upstream").alike(t, "upstream")))
	for key := range merged(mine, theirs) {
		// Upstream stores these as the version before, for an older server beside
		// it, and reads them in any.
		if strings.Contains(theirs[key], "beta") && theirs[key] == regexp.MustCompile("/v1 ").ReplaceAllString(mine[key], "/"+version(theirs[key])+" ") {
			continue
		}
		if mine[key] != theirs[key] {
			t.Errorf("in etcd, %s: orrery %q, upstream %q", key, mine[key], theirs[key])
		}
	}
}

// rest is what belongs to neither set.
func (all objects) rest() objects {
	out := objects{}
	for key, o := range all {
		if !strings.Contains(key, "orrery") && !strings.Contains(key, "upstream") {
			out[key] = o
		}
	}
	return out
}

// untouched takes the annotation of touch away again.
func untouched(all objects) objects {
	for _, o := range all {
		notes := o.GetAnnotations()
		delete(notes, "example.org/touched")
		o.SetAnnotations(notes)
	}
	return all
}

// complete fails for kinds of which testdata has no object.
func complete(t *testing.T, a *api) {
	t.Helper()
	have := map[string]bool{}
	for key := range a.readAll().of("orrery") {
		resource, _, _ := strings.Cut(key, " ")
		have[resource] = true
	}
	// A request for a pod's certificate needs the node's own credentials.
	have["certificates.k8s.io/v1/podcertificaterequests"] = true
	for _, r := range a.stored() {
		if key := fmt.Sprintf("%s/%s/%s", r.Group, r.Version, r.Name); !have[key] {
			t.Errorf("testdata has no object of %s", key)
		}
	}
}

// encodings are the keys of a set in etcd, and how the values are encoded.
func (s *setup) encodings(t *testing.T, who string) map[string]string {
	t.Helper()
	out, err := exec.Command(*orrery, "etcdctl", "--endpoints="+s.etcd, "get", "--prefix", "/registry/", "-w", "json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Kvs []struct{ Key, Value []byte }
	}
	if err := json.Unmarshal(out, &answer); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, kv := range answer.Kvs {
		key := string(kv.Key)
		if !strings.Contains(key, who) {
			continue
		}
		found[strings.ReplaceAll(key, who, "WHO")] = strings.ReplaceAll(encoding(kv.Value), who, "WHO")
	}
	return found
}

// encoding is what a stored value says of itself.
func encoding(value []byte) string {
	if rest, ok := bytes.CutPrefix(value, []byte("k8s\x00")); ok {
		var u runtime.Unknown
		if err := u.Unmarshal(rest); err != nil {
			return err.Error()
		}
		return fmt.Sprintf("protobuf %s %s %q %q", u.APIVersion, u.Kind, u.ContentType, u.ContentEncoding)
	}
	var m metav1.TypeMeta
	if err := json.Unmarshal(value, &m); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("json %s %s, newline %v", m.APIVersion, m.Kind, slices.Contains(value, '\n'))
}

// version is the version in what encoding says.
func version(encoding string) string {
	_, version, _ := strings.Cut(encoding, "/")
	version, _, _ = strings.Cut(version, " ")
	return version
}

func merged(a, b map[string]string) map[string]string {
	both := maps.Clone(a)
	maps.Copy(both, b)
	return both
}
