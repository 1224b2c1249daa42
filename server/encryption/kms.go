package encryption

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2"
	kmstypes "k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2/v2"
	kmsmetrics "k8s.io/apiserver/pkg/storage/value/encrypt/envelope/metrics"
	"k8s.io/kms/pkg/service"

	"orrery.dev/server/reload"
)

// How often a plugin is asked for its status, well and ill; how long its answer
// holds for health checks; and how long data may still be written with the
// present seed once the plugin is ill. The last one bounds how long after a
// change of the plugin's key values of the old one are written.
const (
	askWell, askIll       = time.Minute, 10 * time.Second
	believeWell           = 20 * time.Second
	believeIll            = 3 * time.Second
	writeWithoutPluginFor = 3 * time.Minute
)

// plugin is a KMS v2 plugin: it keeps a key that never leaves it, and encrypts
// with that the seed from which the keys of values are derived. The seed is
// stored, encrypted, with every value.
//
//	no seed ──status and encrypt agree──> seed ──status names another key──┐
//	                                       ^ └─ status names the same key: │
//	                                       │    good for 3 minutes more    │
//	                                       └──────── a new seed ───────────┘
type plugin struct {
	name     string
	serverID string
	timeout  time.Duration
	service  service.Service
	state    atomic.Pointer[kmsv2.State] // the seed that is written with

	mu      sync.Mutex // protects the fields below; held while the plugin is asked
	asked   time.Time
	answer  error // of the last question
	version string
}

// newPlugin connects to a plugin; ctx ends the connection.
func newPlugin(ctx context.Context, c *apiserver.KMSConfiguration, serverID string) (*plugin, error) {
	switch c.APIVersion {
	case "v1":
		return nil, errors.New("KMSv1 is deprecated and will only receive security updates going forward. Use KMSv2 instead.  Set --feature-gates=KMSv1=true to use the deprecated KMSv1 feature.")
	case "v2":
	default:
		return nil, fmt.Errorf("could not configure KMS plugin %q, unsupported KMS API version %q", c.Name, c.APIVersion)
	}
	kmsmetrics.RegisterMetrics()
	s, err := kmsv2.NewGRPCService(ctx, c.Endpoint, c.Name, c.Timeout.Duration)
	if err != nil {
		return nil, fmt.Errorf("could not configure KMSv2-Plugin's probe %q, error: %w", c.Name, err)
	}
	p := &plugin{name: c.Name, serverID: serverID, timeout: c.Timeout.Duration, service: s}
	p.state.Store(&kmsv2.State{KMSProviderName: c.Name})
	return p, nil
}

func (p *plugin) transformer() value.Transformer {
	return kmsv2.NewEnvelopeTransformer(p.service, p.name, p.current, p.serverID)
}

// keep asks the plugin again and again until ctx ends.
func (p *plugin) keep(ctx context.Context, log *slog.Logger) {
	well := true
	for pause := time.Duration(0); reload.Sleep(ctx, pause); {
		err := p.check(ctx)
		if pause = askWell; err != nil {
			pause = askIll
		}
		if ctx.Err() == nil && (err == nil) != well {
			well = err == nil
			log.Info("KMS plugin", "name", p.name, "well", well, "err", err)
		}
	}
}

// check asks the plugin how it is, unless it said so a moment ago, and gets a new
// seed if it has another key.
func (p *plugin) check(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	believe := believeWell
	if p.answer != nil {
		believe = believeIll
	}
	if time.Since(p.asked) < believe {
		return p.answer
	}
	p.answer = p.ask(ctx)
	p.asked = time.Now()
	return p.answer
}

func (p *plugin) ask(ctx context.Context) error {
	status, err := p.service.Status(ctx)
	if err != nil {
		return fmt.Errorf("failed to perform status section of the healthz check for KMS Provider %s, error: %w", p.name, err)
	}
	var errs []error
	if status.Healthz != "ok" {
		errs = append(errs, fmt.Errorf("got unexpected healthz status: %s", status.Healthz))
	}
	errs = append(errs, p.checkVersion(status.Version))
	if code, err := kmsv2.ValidateKeyID(status.KeyID); err != nil {
		kmsmetrics.RecordInvalidKeyIDFromStatus(p.name, string(code))
		errs = append(errs, fmt.Errorf("got invalid KMSv2 KeyID hash %q: %w", kmsv2.GetHashIfNotEmpty(status.KeyID), err))
	} else {
		kmsmetrics.RecordKeyIDFromStatus(p.name, status.KeyID, p.serverID)
		errs = append(errs, p.follow(ctx, status.KeyID))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("kmsv2 Provider %s is not healthy, error: %w", p.name, err)
	}
	return nil
}

func (p *plugin) checkVersion(version string) error {
	if version != kmsv2.KMSAPIVersionv2 && version != kmsv2.KMSAPIVersionv2beta1 {
		return fmt.Errorf("expected KMSv2 API version %s, got %s", kmsv2.KMSAPIVersionv2, version)
	}
	if p.version == "" {
		p.version = version
	}
	if p.version != version {
		return fmt.Errorf("KMSv2 API version should not change after the initial status response version %s, got %s", p.version, version)
	}
	return nil
}

// follow makes the seed one of the plugin's present key. If that fails, the old
// seed stays until its time is up.
func (p *plugin) follow(ctx context.Context, keyID string) error {
	until := time.Now().Add(writeWithoutPluginFor) // counted from before the plugin is asked
	state, stateErr := p.current()
	if stateErr == nil && state.EncryptedObjectKeyID == keyID {
		state.ExpirationTimestamp = until
		p.state.Store(&state)
		return nil
	}
	uid := string(uuid.NewUUID())
	transformer, sealed, cacheKey, err := kmsv2.GenerateTransformer(ctx, uid, p.service, true)
	if err != nil {
		return fmt.Errorf("new seed %s for key %s: %w", uid, kmsv2.GetHashIfNotEmpty(keyID), err)
	}
	if sealed.KeyID != keyID {
		return fmt.Errorf("new seed %s: encrypted with key %s, but the status names %s", uid, kmsv2.GetHashIfNotEmpty(sealed.KeyID), kmsv2.GetHashIfNotEmpty(keyID))
	}
	p.state.Store(&kmsv2.State{
		Transformer:                           transformer,
		EncryptedObjectKeyID:                  sealed.KeyID,
		EncryptedObjectEncryptedDEKSource:     sealed.EncryptedDEKSource,
		EncryptedObjectAnnotations:            sealed.Annotations,
		EncryptedObjectEncryptedDEKSourceType: sealed.EncryptedDEKSourceType,
		UID:                                   uid,
		ExpirationTimestamp:                   until,
		CacheKey:                              cacheKey,
		KMSProviderName:                       p.name,
	})
	_, err = p.current()
	return err
}

// current is the seed. Values may be read with it as long as one likes, and
// written until it expires, which the transformer sees to.
func (p *plugin) current() (kmsv2.State, error) {
	state := *p.state.Load()
	if state.Transformer == nil {
		return kmsv2.State{}, errors.New("got unexpected nil transformer")
	}
	err := kmsv2.ValidateEncryptedObject(&kmstypes.EncryptedObject{
		KeyID:                  state.EncryptedObjectKeyID,
		EncryptedDEKSource:     state.EncryptedObjectEncryptedDEKSource,
		Annotations:            state.EncryptedObjectAnnotations,
		EncryptedDEKSourceType: state.EncryptedObjectEncryptedDEKSourceType,
		EncryptedData:          []byte{0}, // there is always some
	})
	if err != nil {
		return kmsv2.State{}, fmt.Errorf("got invalid EncryptedObject: %w", err)
	}
	return state, nil
}
