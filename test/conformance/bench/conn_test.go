package bench

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"net/http"
	"strconv"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// request is what a conn sends. accept "" is JSON.
type request struct {
	method, path, contentType, accept string
	gzip                              bool
	body                              []byte
}

// reply is what is kept of an answer: not the body, but how it begins.
type reply struct {
	code, size int
	head       []byte
}

// headSize is enough of a list to hold its continue token.
const headSize = 2048

// conn is one HTTP/2 connection with one request at a time on it. It is for one
// goroutine.
type conn struct {
	host    string
	tls     *tls.Conn
	out     *bufio.Writer
	framer  *http2.Framer
	encoder *hpack.Encoder
	headers bytes.Buffer // what encoder writes to

	stream   uint32 // of the last request
	window   int64  // bytes that may be sent on the connection
	initial  int64  // and on a new stream, besides
	received uint32 // bytes that the server was not given back yet
}

// ourWindow is what the server may send without being given back; a stream's can
// be as large as HTTP/2 allows, since none here gets there.
const ourWindow = 1 << 28

func dial(host string, config *tls.Config) (*conn, error) {
	config = config.Clone()
	config.NextProtos = []string{http2.NextProtoTLS}
	link, err := tls.Dial("tcp", host, config)
	if err != nil {
		return nil, err
	}
	c := &conn{host: host, tls: link, out: bufio.NewWriter(link), window: 65535, initial: 65535}
	c.framer = http2.NewFramer(c.out, bufio.NewReaderSize(link, 64*1024))
	c.framer.SetReuseFrames()
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.encoder = hpack.NewEncoder(&c.headers)
	c.out.WriteString(http2.ClientPreface)
	c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1}, http2.Setting{ID: http2.SettingEnablePush, Val: 0})
	c.framer.WriteWindowUpdate(0, ourWindow)
	return c, c.out.Flush()
}

func (c *conn) close() { c.tls.Close() }

// do sends a request and reads the whole answer.
func (c *conn) do(r request) (reply, error) {
	if err := c.send(r); err != nil {
		return reply{}, err
	}
	var got reply
	err := c.receive(func(code int) { got.code = code }, func(data []byte) bool {
		got.size += len(data)
		if room := headSize - len(got.head); room > 0 {
			got.head = append(got.head, data[:min(room, len(data))]...)
		}
		return true
	})
	return got, err
}

// try makes a small request.
func (c *conn) try() error { return done(c.must(request{method: http.MethodGet, path: "/readyz"})) }

// must is do for what has to succeed.
func (c *conn) must(r request) (reply, error) {
	got, err := c.do(r)
	if err == nil && got.code >= http.StatusMultipleChoices {
		err = fmt.Errorf("%s %s: %d %s", r.method, r.path, got.code, got.head)
	}
	return got, err
}

// insist is must for what may fail where etcd is slow (5xx, or the server gives the
// request up): it is tried again, and is done if it turns out to have been.
func (c *conn) insist(r request) error {
	for attempt := 1; ; attempt++ {
		got, err := c.must(r)
		switch {
		case err == nil, attempt > 1 && got.code == http.StatusConflict:
			return nil
		case got.code > 0 && got.code < http.StatusInternalServerError || attempt == 10:
			return err
		}
	}
}

// send writes a request. The body must fit into what the server lets us send
// without having read it, as that of one pod does.
func (c *conn) send(r request) error {
	c.stream += 2
	if c.stream == 2 {
		c.stream = 1
	}
	c.headers.Reset()
	for _, field := range r.fields(c.host) {
		c.encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
	}
	c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: c.stream, BlockFragment: c.headers.Bytes(), EndHeaders: true, EndStream: len(r.body) == 0})
	const most = 16384
	for rest := r.body; len(rest) > 0; {
		piece := rest[:min(len(rest), most)]
		rest = rest[len(piece):]
		c.framer.WriteData(c.stream, len(rest) == 0, piece)
	}
	if c.window -= int64(len(r.body)); c.window < 0 || int64(len(r.body)) > c.initial {
		return fmt.Errorf("%s %s: the server lets us send %d bytes less than we do", r.method, r.path, -c.window)
	}
	return c.out.Flush()
}

func (r request) fields(host string) [][2]string {
	accept := r.accept
	if accept == "" {
		accept = "application/json"
	}
	fields := [][2]string{
		{":method", r.method}, {":scheme", "https"}, {":authority", host}, {":path", r.path},
		{"accept", accept}, {"user-agent", "bench"},
	}
	if r.gzip {
		fields = append(fields, [2]string{"accept-encoding", "gzip"})
	}
	if r.body != nil {
		fields = append(fields, [2]string{"content-type", r.contentType}, [2]string{"content-length", strconv.Itoa(len(r.body))})
	}
	return fields
}

// receive reads frames until the answer is complete, or data wants no more.
func (c *conn) receive(code func(int), data func([]byte) (more bool)) error {
	for {
		frame, err := c.framer.ReadFrame()
		if err != nil {
			return err
		}
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			if status, err := strconv.Atoi(f.PseudoValue("status")); err == nil {
				code(status)
			}
			if f.StreamEnded() {
				return nil
			}
		case *http2.DataFrame:
			more := data(f.Data())
			c.giveBack(f.Length)
			if f.StreamEnded() || !more {
				return c.out.Flush()
			}
		default:
			if err := c.control(frame); err != nil {
				return err
			}
		}
	}
}

// giveBack lets the server send what it has been read, in large portions.
func (c *conn) giveBack(n uint32) {
	if c.received += n; c.received >= ourWindow/2 {
		c.framer.WriteWindowUpdate(0, c.received)
		c.received = 0
		c.out.Flush()
	}
}

// control answers the frames that are about the connection.
func (c *conn) control(frame http2.Frame) error {
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		if f.IsAck() {
			return nil
		}
		if v, ok := f.Value(http2.SettingInitialWindowSize); ok {
			c.initial = int64(v)
		}
		c.framer.WriteSettingsAck()
		return c.out.Flush()
	case *http2.PingFrame:
		if f.IsAck() {
			return nil
		}
		c.framer.WritePing(true, f.Data)
		return c.out.Flush()
	case *http2.WindowUpdateFrame:
		if f.StreamID == 0 {
			c.window += int64(f.Increment)
		}
	case *http2.GoAwayFrame:
		return fmt.Errorf("the server closes the connection: %s", f.ErrCode)
	case *http2.RSTStreamFrame:
		return fmt.Errorf("the server ends the request: %s", f.ErrCode)
	}
	return nil
}
