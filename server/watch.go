package server

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/gorilla/websocket"
	"github.com/klauspost/compress/gzip"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/watch"

	"orrery.dev/server/storage"
)

// watch serves GET with ?watch on a collection: events as they come, in chunks
// over HTTP or as messages of a websocket.
func (c *call) watch() error {
	options, err := c.listOptions()
	if err != nil {
		return err
	}
	selection, err := c.selection(options)
	if err != nil {
		return err
	}
	col, err := c.collection()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), c.s.watchTime(options))
	defer cancel()
	defer c.s.onDrain(cancel)()
	stream := &eventStream{call: c, bookmarks: options.AllowWatchBookmarks, filter: c.splitFields(&selection)}
	stream.toComponent()
	if c.out.as == "Table" {
		if stream.include, err = c.includeObject(); err != nil {
			return err
		}
		stream.columns = true
	}
	watcher, err := col.Watch(ctx, storage.WatchOptions{
		Selection:       selection,
		ResourceVersion: options.ResourceVersion,
		Bookmarks:       options.AllowWatchBookmarks,
		SendInitial:     options.SendInitialEvents,
	})
	if err != nil && c.s.draining() {
		return apierrors.NewServiceUnavailable("the server is shutting down, please try again")
	}
	if err != nil && !isLate(err) {
		return err
	}
	c.flushWarnings()
	isList := boolOf(options.SendInitialEvents) && options.AllowWatchBookmarks
	send, finish, openErr := c.openStream(cancel, isList && takesGzip(c.r))
	if send == nil {
		return openErr
	}
	defer finish()
	if err != nil {
		batch := &frames{}
		stream.addError(batch, err)
		send(batch)
		return nil
	}
	stream.pump(ctx, watcher, send)
	return nil
}

// isLate tells errors that a watch reports as an event, not as a reply: the
// version asked for is too old, or not there yet.
func isLate(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsTimeout(err)
}

// watchTime is how long a watch lasts, unless the client says so spread up to twice
// the least, so that clients don't come back all at once.
func (s *Server) watchTime(o *metav1.ListOptions) time.Duration {
	if o.TimeoutSeconds != nil && *o.TimeoutSeconds > 0 {
		return time.Duration(*o.TimeoutSeconds) * time.Second
	}
	return s.LeastWatch + rand.N(s.LeastWatch)
}

// onDrain has cancel called when the server drains; the returned function takes
// that back.
func (s *Server) onDrain(cancel context.CancelFunc) (forget func()) {
	s.drainMu.Lock()
	defer s.drainMu.Unlock()
	if s.drained {
		cancel()
		return func() {}
	}
	s.lastDrain++
	id := s.lastDrain
	s.onDraining[id] = cancel
	return func() {
		s.drainMu.Lock()
		defer s.drainMu.Unlock()
		delete(s.onDraining, id)
	}
}

// openStream begins the reply: send delivers a batch of framed events at once. It
// is nil if there is no stream: err is why, unless the client was told. compress
// it only where a list would be compressed.
func (c *call) openStream(cancel context.CancelFunc, compress bool) (send func(*frames) error, finish func(), err error) {
	if websocket.IsWebSocketUpgrade(c.r) {
		return c.openSocket(cancel)
	}
	contentType := c.out.name
	switch c.out.name {
	case typeProtobuf:
		contentType += ";stream=watch"
	case typeCBOR:
		contentType += "-seq"
	}
	flusher := http.NewResponseController(c.w)
	c.w.Header().Set("Content-Type", contentType)
	c.w.Header().Set("Cache-Control", "no-cache, private")
	write := c.w.Write
	if compress {
		c.w.Header().Set("Content-Encoding", "gzip")
		c.w.Header().Add("Vary", "Accept-Encoding")
		write = func(body []byte) (int, error) { return len(body), gzipTo(c.w, body) }
	}
	c.w.WriteHeader(http.StatusOK)
	if err := flusher.Flush(); err != nil {
		return nil, nil, apierrors.NewInternalError(err)
	}
	send = func(batch *frames) error {
		if _, err := write(batch.bytes); err != nil {
			return err
		}
		return flusher.Flush()
	}
	return send, func() {}, nil
}

// gzipTo writes a compressed piece that ends here: a quiet watch holds no compressor.
// Without the flush, readers would wait for the next piece before they hand out this.
func gzipTo(w io.Writer, body []byte) error {
	compressor := compressors.Get().(*gzip.Writer)
	defer compressors.Put(compressor)
	compressor.Reset(w)
	_, err := compressor.Write(body)
	return errors.Join(err, compressor.Flush(), compressor.Close())
}

// openSocket upgrades to a websocket: one message per event, text for JSON. What
// the client sends is read and dropped, to notice when it leaves.
func (c *call) openSocket(cancel context.CancelFunc) (send func(*frames) error, finish func(), err error) {
	upgrader := websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}
	conn, err := upgrader.Upgrade(c.w, c.r, nil)
	if err != nil {
		return nil, nil, nil // the upgrader has answered
	}
	kind := websocket.TextMessage
	if c.out.name != typeJSON {
		kind = websocket.BinaryMessage
	}
	left := make(chan struct{})
	go func() { // ends when conn is closed, which finish waits for
		defer close(left)
		defer cancel()
		for {
			if _, _, err := conn.NextReader(); err != nil {
				return
			}
		}
	}()
	send = func(batch *frames) error {
		begin := 0
		for _, end := range batch.ends {
			if err := conn.WriteMessage(kind, batch.bytes[begin:end]); err != nil {
				return err
			}
			begin = end
		}
		return nil
	}
	finish = func() {
		bye := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
		_ = conn.WriteControl(websocket.CloseMessage, bye, time.Now().Add(time.Second)) // a courtesy
		conn.Close()
		<-left
	}
	return send, finish, nil
}

// eventStream frames the events of one watch.
type eventStream struct {
	*call
	include metav1.IncludeObjectPolicy // of a Table
	columns bool                       // the next Table must define its columns
	// bookmarks: the client asked for them.
	bookmarks bool
	filter    *fieldFilter
	// Events are told of to deliveries (nil: they are not) as sent to a component, on a
	// node if it has one.
	deliveries chan<- delivery
	to, node   string
}

// frames are events ready to be sent. The buffer is used again for every batch
// of a watch.
type frames struct {
	bytes []byte
	ends  []int // where each frame ends
}

func (f *frames) reset() { f.bytes, f.ends = f.bytes[:0], f.ends[:0] }

// pump sends batches of events until ctx ends or the watcher fails; the failure
// is the last event.
func (e *eventStream) pump(ctx context.Context, watcher *storage.Watcher, send func(*frames) error) {
	batch := &frames{}
	sent := e.s.metrics.ofWatch(e.r, e.requestInfo)
	for {
		if _, current := watcher.Bookmark(); current {
			watchBegun(e.r.Context())
		}
		events, err := watcher.Next(ctx)
		over := ctx.Err() != nil
		if over && err != nil {
			e.sayGoodbye(ctx, watcher, send)
			return
		}
		batch.reset()
		for _, event := range events {
			if encodeErr := e.add(batch, event); encodeErr != nil {
				err = encodeErr
				break
			}
		}
		if errors.Is(err, errNoForm) {
			return
		}
		if err != nil {
			e.addError(batch, err)
			send(batch)
			return
		}
		if len(batch.ends) > 0 && send(batch) != nil {
			return // the client is gone
		}
		e.deliver(events)
		sent(batch, events)
		if over { // only now: the bookmark counts these events as sent
			e.sayGoodbye(ctx, watcher, send)
			return
		}
	}
}

// sayGoodbye sends a last bookmark when the watch's time is up, so that the
// client's next one starts where this one ended.
func (e *eventStream) sayGoodbye(ctx context.Context, watcher *storage.Watcher, send func(*frames) error) {
	mark, ok := watcher.Bookmark()
	if !ok || !e.bookmarks || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return
	}
	batch := &frames{}
	if e.add(batch, mark) == nil {
		send(batch)
	}
}

// addError adds the ERROR event that ends a watch.
func (e *eventStream) addError(batch *frames, err error) {
	if body, encodeErr := e.encode(statusOf(err), statusKind); encodeErr == nil {
		_ = e.wrap(batch, watch.Error, body...) // it was encoded just now
	}
}

// add frames an event as it goes over the wire.
func (e *eventStream) add(batch *frames, event storage.Event) error {
	event, ok, err := e.filter.event(event)
	if err != nil || !ok {
		return err
	}
	body, err := e.object(event)
	if err != nil {
		return err
	}
	return e.wrap(batch, watch.EventType(event.Type), body...)
}

// wrap puts the event around an object: a line of JSON, a protobuf WatchEvent
// (type in field 1, RawExtension with the object's envelope in field 2) behind
// its length, or an item of CBOR.
func (e *eventStream) wrap(batch *frames, kind watch.EventType, object ...[]byte) error {
	b := batch.bytes
	switch e.out.name {
	case typeCBOR:
		event, err := direct.Marshal(metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: slices.Concat(object...)}})
		if err != nil {
			return err
		}
		b = append(append(b, cborPrefix...), event...)
	case typeProtobuf:
		size := 0
		for _, piece := range object {
			size += len(piece)
		}
		raw := fieldSize(size)
		b = binary.BigEndian.AppendUint32(b, uint32(fieldSize(len(kind))+fieldSize(raw)))
		b = appendField(b, 1, []byte(kind))
		b = appendAll(appendFieldHead(appendFieldHead(b, 2, raw), 1, size), object)
	default:
		b = append(append(append(b, `{"type":"`...), kind...), `","object":`...)
		b = append(appendAll(b, object), "}\n"...)
	}
	batch.bytes, batch.ends = b, append(batch.ends, len(b))
	return nil
}

func appendAll(b []byte, pieces [][]byte) []byte {
	for _, piece := range pieces {
		b = append(b, piece...)
	}
	return b
}

// errNoForm ends a watch whose events have no such form: of one object no list can
// be made.
var errNoForm = errors.New("no such form")

// object is the object of an event in the form and encoding asked for, from the
// bytes that all watchers share where possible.
func (e *eventStream) object(event storage.Event) ([][]byte, error) {
	switch {
	case event.Item == nil:
		return e.bookmark(event)
	case e.out.as == "Table":
		return e.tableEvent(event.Item.Object())
	case e.out.as == "PartialObjectMetadataList":
		return nil, errNoForm
	}
	kind, form := e.kind.GroupVersionKind, e.itemEncoded
	if e.out.as != "" {
		kind, form = e.formKind(), e.itemMetadata
	}
	message, err := form(event.Item)
	if err != nil {
		return nil, err
	}
	return framed(e.out.name, kind, message), nil
}

// bookmark is an empty object of the kind with the version that the watch has
// reached.
func (e *eventStream) bookmark(event storage.Event) ([][]byte, error) {
	obj := e.kind.New()
	obj.GetObjectKind().SetGroupVersionKind(e.kind.GroupVersionKind)
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	m.SetResourceVersion(strconv.FormatInt(event.Revision, 10))
	if event.InitialEnd {
		m.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	switch {
	case e.out.as == "Table":
		return e.tableEvent(obj)
	case e.out.as != "":
		partial, err := e.metadataOf(obj)
		if err != nil {
			return nil, err
		}
		return e.encode(partial, partial.GroupVersionKind())
	}
	return e.encode(obj, e.kind.GroupVersionKind)
}

func (e *eventStream) encode(obj runtime.Object, kind schema.GroupVersionKind) ([][]byte, error) {
	body, err := encoded(e.out.name, obj, kind)
	if err != nil {
		return nil, err
	}
	return framed(e.out.name, kind, storage.Message{Rest: body}), nil
}

// tableEvent is a table of one row; only the first one of a watch defines the
// columns.
func (e *eventStream) tableEvent(obj runtime.Object) ([][]byte, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	row, err := e.row(obj, e.include)
	if err != nil {
		return nil, err
	}
	table := e.table(metav1.ListMeta{ResourceVersion: m.GetResourceVersion()}, e.columns)
	e.columns = false
	table.Rows = append(table.Rows, row)
	body, err := json.Marshal(table)
	return [][]byte{body}, err
}
