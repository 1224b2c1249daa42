package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/gin-gonic/gin"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// auditBacklog is how many events may wait to be written. More are dropped: a
// slow disk must not slow the API.
const auditBacklog = 4096

// auditLog writes who did what to a file, one JSON event a line, as upstream's
// log backend does at level Metadata. Writing is the job of run.
type auditLog struct {
	file    *os.File
	events  chan []byte
	dropped chan struct{} // holds one token per burst of dropped events
}

func openAuditLog(path string) (*auditLog, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return &auditLog{file: file, events: make(chan []byte, auditBacklog), dropped: make(chan struct{}, 1)}, nil
}

// put hands an event over without waiting.
func (l *auditLog) put(line []byte) {
	select {
	case l.events <- line:
	default:
		select {
		case l.dropped <- struct{}{}:
		default:
		}
	}
}

// run writes until ctx ends, and then what is left.
func (l *auditLog) run(ctx context.Context) {
	defer l.file.Close()
	out := bufio.NewWriterSize(l.file, 64*1024)
	defer out.Flush()
	flush := time.NewTicker(time.Second)
	defer flush.Stop()
	for {
		select {
		case line := <-l.events:
			out.Write(line)
		case <-flush.C:
			out.Flush()
		case <-l.dropped:
			fmt.Fprintln(out, `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","stage":"Panic","annotations":{"orrery.dev/dropped":"events were dropped here"}}`)
		case <-ctx.Done():
			for {
				select {
				case line := <-l.events:
					out.Write(line)
				default:
					return
				}
			}
		}
	}
}

// auditEvent gathers what becomes one line. It is safe for concurrent use, as
// admission may annotate from goroutines.
type auditEvent struct {
	mu          sync.Mutex // protects annotations
	annotations map[string]string
}

func (e *auditEvent) annotate(key, value string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.annotations == nil {
		e.annotations = map[string]string{}
	}
	e.annotations[key] = value
}

func auditFrom(ctx context.Context) *auditEvent {
	e, _ := ctx.Value(keyAudit).(*auditEvent)
	return e
}

// auditID is the request's ID in the log: the client's or a new one.
func auditID(r *http.Request) string {
	if id := r.Header.Get("Audit-Id"); id != "" && len(id) <= 64 {
		return id
	}
	id := string(uuid.NewUUID())
	r.Header.Set("Audit-Id", id)
	return id
}

// record writes the audit event of a request when it is over. For a watch that
// is when it ends.
func (s *Server) record(c *gin.Context) {
	if s.audit == nil {
		return
	}
	event := &auditEvent{}
	c.Request = c.Request.WithContext(context.WithValue(c.Request.Context(), keyAudit, event))
	begin, who := metav1.NowMicro(), userFrom(c.Request.Context())
	defer func() {
		line, err := json.Marshal(auditEventOf(c, event, begin, who))
		if err != nil {
			return
		}
		s.audit.put(append(line, '\n'))
	}()
	c.Next()
}

// auditEventOf is the line of a request by who, which may have acted as somebody
// else since.
func auditEventOf(c *gin.Context, event *auditEvent, begin metav1.MicroTime, who user.Info) *auditv1.Event {
	info := infoFrom(c.Request.Context())
	e := &auditv1.Event{
		TypeMeta:                 metav1.TypeMeta{Kind: "Event", APIVersion: auditv1.SchemeGroupVersion.String()},
		Level:                    auditv1.LevelMetadata,
		AuditID:                  types.UID(auditID(c.Request)),
		Stage:                    auditv1.StageResponseComplete,
		RequestURI:               c.Request.URL.RequestURI(),
		Verb:                     info.Verb,
		User:                     userInfo(who),
		UserAgent:                c.Request.UserAgent(),
		ResponseStatus:           &metav1.Status{Code: int32(c.Writer.Status())},
		RequestReceivedTimestamp: begin,
		StageTimestamp:           metav1.NowMicro(),
	}
	if host, _, err := net.SplitHostPort(c.Request.RemoteAddr); err == nil {
		e.SourceIPs = []string{host}
	}
	if as := userFrom(c.Request.Context()); as != who {
		asked := userInfo(as)
		e.ImpersonatedUser = &asked
	}
	if info.Resource {
		e.ObjectRef = &auditv1.ObjectReference{
			Resource: info.GVR.Resource, Subresource: info.Subresource, Namespace: info.Namespace,
			Name: info.Name, APIGroup: info.GVR.Group, APIVersion: info.GVR.Version,
		}
	}
	event.mu.Lock()
	defer event.mu.Unlock()
	e.Annotations = event.annotations
	return e
}

// userInfo is a user as the API's objects have it.
func userInfo(u user.Info) authenticationv1.UserInfo {
	if u == nil {
		return authenticationv1.UserInfo{}
	}
	info := authenticationv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups()}
	for key, values := range u.GetExtra() {
		if info.Extra == nil {
			info.Extra = map[string]authenticationv1.ExtraValue{}
		}
		info.Extra[key] = values
	}
	return info
}
