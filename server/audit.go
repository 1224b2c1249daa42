package server

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"orrery.dev/server/admission"
	"orrery.dev/server/audit"
	"orrery.dev/server/patch"
	"orrery.dev/server/storage"
)

// auditID is the request's ID in the log: the client's or a new one.
func auditID(r *http.Request) string {
	if id := r.Header.Get("Audit-Id"); id != "" {
		return id
	}
	id := string(uuid.NewUUID())
	r.Header.Set("Audit-Id", id)
	return id
}

// record writes the audit events of a request: when it has been received, when
// it is over, and for one that lasts, when the answer begins.
func (s *Server) record(c *gin.Context) {
	event, ok := s.beginAudit(c)
	if !ok {
		return
	}
	if !event.Reach(auditv1.StageRequestReceived) {
		s.Audit.Rejected()
		s.refuse(c, apierrors.NewInternalError(errors.New("failed to store audit event")))
		return
	}
	info := infoFrom(c.Request.Context())
	lasts := info.longRunning() || s.isStream(info.Path)
	c.Writer = &auditWriter{ResponseWriter: c.Writer, event: event, lasts: lasts}
	defer func() {
		if cause := recover(); cause != nil {
			event.Status(&metav1.Status{
				Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError,
				Message: fmt.Sprintf("APIServer panic'd: %v", cause),
			})
			event.Reach(auditv1.StagePanic)
			panic(cause)
		}
		if !event.Answered() {
			event.Status(&metav1.Status{Status: metav1.StatusSuccess, Code: http.StatusOK, Message: "Connection closed early"})
			if lasts {
				event.Reach(auditv1.StageResponseStarted)
			}
		}
		event.Reach(auditv1.StageResponseComplete)
	}()
	c.Next()
}

// beginAudit asks the policy about a request; false: it is not to be recorded.
func (s *Server) beginAudit(c *gin.Context) (*audit.Event, bool) {
	event := audit.From(c.Request.Context())
	if event == nil {
		return nil, false
	}
	received, _ := c.Request.Context().Value(keyReceived).(time.Time)
	return event, event.Begin(attributesOf(c.Request), c.Request, received)
}

// refuseAudited refuses a request that does not get as far as record. Its only
// event is that of the answer.
func (s *Server) refuseAudited(c *gin.Context, err error) {
	if event, ok := s.beginAudit(c); ok {
		c.Writer = &auditWriter{ResponseWriter: c.Writer, event: event, lasts: true}
	}
	s.refuse(c, err)
}

// auditWriter notes the status code of an answer when it begins.
type auditWriter struct {
	gin.ResponseWriter
	event *audit.Event
	lasts bool // the beginning is an event of its own
	begun bool
}

func (w *auditWriter) begin(code int) {
	if w.begun {
		return
	}
	w.begun = true
	w.event.Code(code)
	if w.lasts {
		w.event.Reach(auditv1.StageResponseStarted)
	}
}

// WriteHeader implements http.ResponseWriter.
func (w *auditWriter) WriteHeader(code int) {
	w.begin(code)
	w.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (w *auditWriter) Write(p []byte) (int, error) {
	w.begin(w.Status())
	return w.ResponseWriter.Write(p)
}

// WriteString implements io.StringWriter.
func (w *auditWriter) WriteString(s string) (int, error) {
	w.begin(w.Status())
	return w.ResponseWriter.WriteString(s)
}

// Flush implements http.Flusher.
func (w *auditWriter) Flush() {
	w.begin(w.Status())
	w.ResponseWriter.Flush()
}

// Hijack implements http.Hijacker: the connection is about to change its
// protocol.
func (w *auditWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.begin(http.StatusSwitchingProtocols)
	return w.ResponseWriter.Hijack()
}

// Unwrap is for http.ResponseController.
func (w *auditWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// annotate adds an audit annotation. What a webhook has made of an object is for
// those who see the object.
func (c *call) annotate(key, value string) {
	if strings.HasPrefix(key, admission.PatchAnnotation) && !audit.From(c.r.Context()).Wants(auditv1.LevelRequest) {
		return
	}
	audit.Annotate(c.r.Context(), key, value)
}

// auditRequest records the object that a client has sent, defaults filled in.
func (c *call) auditRequest(obj runtime.Object, kind schema.GroupVersionKind) {
	event := audit.From(c.r.Context())
	if m, err := meta.Accessor(obj); err == nil {
		event.Names(m)
	}
	if !event.Wants(auditv1.LevelRequest) {
		return
	}
	if kind == c.kind.GroupVersionKind && c.kind.Default != nil {
		obj = obj.DeepCopyObject()
		c.kind.Default(obj)
	}
	if raw, err := encodeJSON(obj, kind); err == nil {
		event.Request(raw)
	}
}

// auditPatch records a patch. What is no JSON is refused by whoever reads it.
func (c *call) auditPatch(kind types.PatchType, body []byte) {
	event := audit.From(c.r.Context())
	if !event.Wants(auditv1.LevelRequest) {
		return
	}
	if isApply(kind) {
		intent, err := patch.NewIntent(kind, body)
		if err != nil {
			return
		}
		obj, err := intent.Object()
		if err != nil {
			return
		}
		if body, err = json.Marshal(obj.Object); err != nil {
			return
		}
	}
	if json.Valid(body) {
		event.Request(body)
	}
}

// auditResponse records the object of an answer.
func auditResponse(r *http.Request, obj runtime.Object, kind schema.GroupVersionKind) {
	event := audit.From(r.Context())
	if status, ok := obj.(*metav1.Status); ok {
		event.Status(status)
	}
	if !event.Wants(auditv1.LevelRequestResponse) {
		return
	}
	if raw, err := encodeJSON(obj, kind); err == nil {
		event.Response(raw)
	}
}

// auditItem records an item as the object of an answer.
func (c *call) auditItem(item *storage.Item) {
	event := audit.From(c.r.Context())
	if !event.Wants(auditv1.LevelRequestResponse) {
		return
	}
	if raw, err := c.itemJSON(item); err == nil {
		event.Response(raw)
	}
}

// auditPage records a list, which is spliced for the log as it is for the client.
func (c *call) auditPage(page *storage.Page) {
	whole := c.kind.Unstructured()
	c.auditItems(c.listKind(), page, whole, func(item *storage.Item) ([]byte, error) {
		body, err := c.itemJSON(item)
		if err == nil && !whole {
			body = withoutType(body)
		}
		return body, err
	})
}

// auditMetadata records a list of metadata only.
func (c *call) auditMetadata(page *storage.Page) {
	kind := c.formKind()
	kind.Kind = "PartialObjectMetadataList"
	c.auditItems(kind, page, true, func(item *storage.Item) ([]byte, error) {
		partial, err := c.metadataOf(item.Object())
		if err != nil {
			return nil, err
		}
		return json.Marshal(partial)
	})
}

func (c *call) auditItems(kind schema.GroupVersionKind, page *storage.Page, whole bool, encode func(*storage.Item) ([]byte, error)) {
	event := audit.From(c.r.Context())
	if !event.Wants(auditv1.LevelRequestResponse) {
		return
	}
	items := make([][]byte, len(page.Items))
	for i, item := range page.Items {
		var err error
		if items[i], err = encode(item); err != nil {
			return
		}
	}
	meta, err := json.Marshal(listMeta(page))
	if err != nil {
		return
	}
	var all bytes.Buffer
	spliceTo(&all, listHead(kind, meta), items, whole)
	event.Response(all.Bytes())
}

// auditDeleteOptions records the options in the version in which the client has
// sent them.
func (c *call) auditDeleteOptions(options *metav1.DeleteOptions) {
	kind := options.GroupVersionKind()
	if kind.Version == "" {
		kind = metav1.SchemeGroupVersion.WithKind("DeleteOptions")
	}
	if raw, err := encodeJSON(options, kind); err == nil {
		audit.From(c.r.Context()).Request(raw)
	}
}
