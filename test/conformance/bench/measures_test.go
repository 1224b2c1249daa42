package bench

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"sync"
	"time"
)

// measure is one row of the result.
type measure struct {
	name string
	run  func(s *server) (sample, error)
}

// sample takes the times around do, which returns how many operations it did.
func (s *server) sample(do func() (int64, error)) (sample, error) {
	if s.begun != nil {
		s.begun()
	}
	cpu, etcd, err := s.usage()
	if err != nil {
		return sample{}, err
	}
	begin := time.Now()
	done, err := do()
	if err != nil {
		return sample{}, err
	}
	wall := time.Since(begin)
	cpu2, etcd2, err := s.usage()
	return sample{Done: done, Wall: wall, CPU: cpu2 - cpu, Etcd: etcd2 - etcd}, err
}

func (s *server) usage() (server, etcd time.Duration, err error) {
	if server, err = s.CPU(); err != nil {
		return 0, 0, err
	}
	etcd, err = s.Etcd.CPU()
	return server, etcd, err
}

// measures are all there are, in running order. Those that add pods come last.
func measures() []measure {
	var all []measure
	for _, l := range []struct {
		name, query, accept string
		gzip                bool
	}{
		{"JSON", "", "application/json", false},
		{"protobuf", "", "application/vnd.kubernetes.protobuf", false},
		{"Table", "", "application/json;as=Table;v=v1;g=meta.k8s.io", false},
		{"JSON, gzip", "", "application/json", true},
		{"JSON, pages of 500", "limit=500", "application/json", false},
		{"JSON, any version", "resourceVersion=0", "application/json", false},
	} {
		all = append(all, measure{"list: " + l.name, func(s *server) (sample, error) { return s.lists(l.query, l.accept, l.gzip) }})
	}
	for _, as := range [][2]string{{"JSON", "application/json"}, {"protobuf", "application/vnd.kubernetes.protobuf;stream=watch"}} {
		all = append(all, measure{fmt.Sprintf("watch: %s to %d", as[0], watchers), func(s *server) (sample, error) { return s.fanOut(as[1]) }})
	}
	for _, op := range []struct {
		name string
		few  int64 // operations of one client; several clients do more
		do   func(s *server, c *conn, n int64) error
	}{
		{"get", 500, func(_ *server, c *conn, n int64) error { return done(c.must(getPod(n % allPods))) }},
		{"patch", 200, func(s *server, c *conn, n int64) error { return s.touch(c, n) }},
		{"create", 200, func(s *server, c *conn, _ int64) error {
			return done(c.must(createPod(allPods + s.created.Add(1))))
		}},
	} {
		for _, clients := range []int{1, 16, mostClients} {
			parts := op.few * int64(min(clients, 4))
			all = append(all, measure{fmt.Sprintf("%s: %d clients", op.name, clients), func(s *server) (sample, error) {
				return s.sample(func() (int64, error) {
					return parts, s.share(clients, parts, func(c *conn, n int64) error { return op.do(s, c, n) })
				})
			}})
		}
	}
	return all
}

func done(_ reply, err error) error { return err }

// touch changes the status of a pod.
func (s *server) touch(c *conn, n int64) error {
	return done(c.must(patchStatus(n%allPods, s.touched.Add(1))))
}

// A list is repeated until both of these, since the kernel counts CPU time in
// hundredths of a second.
const (
	leastLists    = 3
	leastListTime = 700 * time.Millisecond
)

// lists reads all pods again and again, in pages if the query asks for them. The
// first time does not count: it is ours that keeps what it has encoded.
func (s *server) lists(query, accept string, gzip bool) (sample, error) {
	c := s.clients[0]
	if err := listAll(c, query, accept, gzip); err != nil {
		return sample{}, err
	}
	return s.sample(func() (n int64, err error) {
		for begin := time.Now(); n < leastLists || time.Since(begin) < leastListTime; n++ {
			if err := listAll(c, query, accept, gzip); err != nil {
				return 0, err
			}
		}
		return n, nil
	})
}

var continueToken = regexp.MustCompile(`"continue":"([^"]+)"`)

func listAll(c *conn, query, accept string, gzip bool) error {
	for next := ""; ; {
		got, err := c.must(request{method: http.MethodGet, path: listPath + "?" + query + next, accept: accept, gzip: gzip})
		if err != nil {
			return err
		}
		found := continueToken.FindSubmatch(got.head)
		if gzip || found == nil {
			return nil
		}
		next = "&continue=" + url.QueryEscape(string(found[1]))
	}
}

// What watchers see: changes made by several writers as fast as they can.
const (
	watchers = 500
	writers  = 4
	changes  = 200
)

// fanOut counts deliveries of changes to many watchers, each a client of its
// own. Their start is not part of it.
func (s *server) fanOut(accept string) (sample, error) {
	conns, err := s.connect(watchers)
	if err != nil {
		return sample{}, err
	}
	version, err := s.version()
	if err != nil {
		return sample{}, err
	}
	path := listPath + "?watch=1&resourceVersion=" + version
	errs := make([]error, watchers)
	var started, finished sync.WaitGroup
	started.Add(watchers)
	for i, c := range conns {
		finished.Go(func() {
			defer c.close()
			errs[i] = c.watch(request{method: http.MethodGet, path: path, accept: accept}, started.Done)
		})
	}
	started.Wait()
	taken, err := s.sample(func() (int64, error) {
		if err := s.share(writers, changes, s.touch); err != nil {
			return 0, err
		}
		finished.Wait()
		return watchers * changes, errors.Join(errs...)
	})
	return taken, err
}

// version is that of the newest state.
func (s *server) version() (string, error) {
	got, err := s.clients[0].must(request{method: http.MethodGet, path: listPath + "?limit=1"})
	if err != nil {
		return "", err
	}
	found := regexp.MustCompile(`"resourceVersion":"(\d+)"`).FindSubmatch(got.head)
	if found == nil {
		return "", fmt.Errorf("no resourceVersion in %s", got.head)
	}
	return string(found[1]), nil
}

// watch reads events until all changes have come. started is called once.
func (c *conn) watch(r request, started func()) error {
	err := c.send(r)
	once := sync.OnceFunc(started)
	defer once() // of a watch that did not
	if err != nil {
		return err
	}
	var count int
	counter := eventCounter(r.accept)
	return c.receive(func(code int) {
		if code == http.StatusOK {
			once()
		}
	}, func(data []byte) bool {
		count += counter(data)
		return count < changes
	})
}

// eventCounter returns what counts the events that end in each piece of a stream:
// lines of JSON, or messages behind their length of four bytes.
func eventCounter(accept string) func([]byte) int {
	if accept == "application/json" {
		return func(data []byte) int { return bytes.Count(data, []byte("\n")) }
	}
	var head []byte
	left := 0
	return func(data []byte) (ended int) {
		for len(data) > 0 {
			if left == 0 {
				n := min(4-len(head), len(data))
				head, data = append(head, data[:n]...), data[n:]
				if len(head) < 4 {
					return ended
				}
				left = int(head[0])<<24 | int(head[1])<<16 | int(head[2])<<8 | int(head[3])
				head = head[:0]
			}
			n := min(left, len(data))
			data = data[n:]
			if left -= n; left == 0 {
				ended++
			}
		}
		return ended
	}
}
