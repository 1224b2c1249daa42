package stream

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
)

// FuzzMessages says anything to a connection, a message a line: there is no panic,
// what it answers can be sent, and a client cannot make it hold ever more.
func FuzzMessages(f *testing.F) {
	for _, seed := range []string{
		`{"op":"open","id":1,"view":{"resource":"pods"}}` + "\n" + `{"op":"ack","id":1,"revision":"2"}` + "\n" + `{"op":"close","id":1}`,
		`{"op":"open","id":1,"view":{"resource":"pods","namespaces":["a","b"],"labelSelector":"a in (b),!c","fieldSelector":"metadata.name!=x"},"revision":"1"}`,
		`{"op":"open","id":1,"view":{"resource":"pods","namespaces":["a"],"name":"one"}}` + "\n" + `{"op":"open","id":1,"view":{"resource":"pods"}}`,
		`{"op":"open","id":2,"view":{"resource":"pods","name":"one"}}` + "\n" + `{"op":"open","id":-1}`,
		`{"op":"open","id":9223372036854775807,"view":{"group":"x","version":"y","resource":"z","fieldSelector":"a=b=c"},"revision":"-1"}`,
		`{"op":"ack","id":7,"revision":null}` + "\n" + `{"op":5}` + "\n" + `{` + "\n" + `null` + "\n" + `[]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, said []byte) {
		source := newFake()
		source.put("a", "one")
		source.put("b", "two")
		c := newConnection(Config{Source: source, Authorizer: source}, &user.DefaultInfo{Name: "u"}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		for line := range bytes.SplitSeq(said, []byte("\n")) {
			if c.receive(ctx, line) != nil {
				break
			}
		}
		queue, subs := c.waiting()
		if len(queue) > maxQueue || len(subs) > maxSubscriptions {
			t.Errorf("%d messages and %d views are held", len(queue), len(subs))
		}
		for _, sub := range subs {
			if tell, ok, _ := sub.take(); ok {
				queue = append(queue, tell)
			}
		}
		for _, tell := range queue {
			if _, err := json.Marshal(tell); err != nil {
				t.Error(err)
			}
		}
		cancel()
		c.work.Wait()
	})
}
