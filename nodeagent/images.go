package nodeagent

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// imagePuller pulls images, each one at a time, and waits ever longer between
// pulls that fail.
type imagePuller struct {
	a *Agent

	mu      sync.Mutex // protects the fields below
	backoff map[pullKey]pullBackoff
	busy    map[string]chan struct{} // one slot per image
	slots   chan struct{}            // pulls at the same time, of all images
	records *pullRecords             // nil: everyone may use what is on the node
}

// pullKey is one pod's wish for an image: another pod may have better
// credentials.
type pullKey struct {
	pod   types.UID
	image string
}

type pullBackoff struct {
	wait    time.Duration
	until   time.Time
	message string // of the last failure
}

const (
	pullFirst   = 10 * time.Second
	pullLongest = 5 * time.Minute
)

func newImagePuller(a *Agent) *imagePuller {
	n := 1
	if !*a.cfg.Kubelet.SerializeImagePulls {
		n = 5
		if m := a.cfg.Kubelet.MaxParallelImagePulls; m != nil {
			n = int(*m)
		}
	}
	p := &imagePuller{a: a, backoff: map[pullKey]pullBackoff{}, busy: map[string]chan struct{}{}, slots: make(chan struct{}, n)}
	if !a.cfg.Simulated {
		p.records = &pullRecords{dir: filepath.Join(a.cfg.RootDir, "image_manager")}
	}
	return p
}

// wantedImage is an image that a pod needs, and who is told what becomes of it.
type wantedImage struct {
	name    string // as the pod has it
	policy  corev1.PullPolicy
	pod     *corev1.Pod
	sandbox *runtimeapi.PodSandboxConfig
	handler string
	say     func(kind, reason, text string)
}

// ensure sees to it that an image is on the node, and returns the runtime's
// reference to it.
func (p *imagePuller) ensure(ctx context.Context, want wantedImage) (string, error) {
	say, pod := want.say, want.pod
	named, err := reference.ParseNormalizedNamed(want.name)
	if err != nil {
		text := fmt.Sprintf("Failed to apply default image tag %q: couldn't parse image name %q: %v", want.name, want.name, err)
		say(corev1.EventTypeWarning, "InspectFailed", text)
		return "", &startError{reason: "InvalidImageName", message: text}
	}
	image := want.name
	if reference.IsNameOnly(named) {
		image += ":latest"
	}
	spec := &runtimeapi.ImageSpec{Image: image, UserSpecifiedImage: want.name, RuntimeHandler: want.handler, Annotations: pod.Annotations}
	lock := p.lock(image)
	select {
	case lock <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { <-lock }()
	resp, err := p.a.cfg.Images.ImageStatus(ctx, spec, false)
	if err != nil {
		text := fmt.Sprintf("Failed to inspect image %q: %s", want.name, grpcText(err))
		say(corev1.EventTypeWarning, "InspectFailed", text)
		return "", &startError{reason: "ImageInspectError", message: text}
	}
	present := resp.GetImage()
	creds := sync.OnceValue(func() []credential { return p.credentials(ctx, pod, image) })
	if present != nil && want.policy != corev1.PullAlways && p.mayUse(want.name, present.Id, creds) {
		say(corev1.EventTypeNormal, "Pulled", fmt.Sprintf("Container image %q already present on machine and can be accessed by the pod", want.name))
		return present.Id, nil
	}
	if want.policy == corev1.PullNever { // not a word of an image that the pod may not use
		text := fmt.Sprintf("Container image %q is not present with pull policy of Never", want.name)
		say(corev1.EventTypeWarning, "ErrImageNeverPull", text)
		return "", &startError{reason: "ErrImageNeverPull", message: text}
	}
	if b, waiting := p.waits(pullKey{pod.UID, image}); waiting {
		text := fmt.Sprintf("Back-off pulling image %q", want.name)
		say(corev1.EventTypeNormal, "BackOff", text)
		return "", &startError{reason: reasonPullBackOff, message: text + ": " + b.message, until: b.until}
	}
	return p.pull(ctx, want, spec, creds())
}

func (p *imagePuller) pull(ctx context.Context, want wantedImage, spec *runtimeapi.ImageSpec, creds []credential) (string, error) {
	say := want.say
	say(corev1.EventTypeNormal, "Pulling", fmt.Sprintf("Pulling image %q", spec.UserSpecifiedImage))
	asked := time.Now()
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	begin := time.Now()
	ref, err := p.pullWith(ctx, spec, creds, want.sandbox)
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		say(corev1.EventTypeWarning, "Failed", fmt.Sprintf("Failed to pull image %q: %v", spec.UserSpecifiedImage, err))
		reason, message := pullFailure(spec.UserSpecifiedImage, err)
		// The status shows the failure for a moment, then the back-off.
		p.fail(pullKey{want.pod.UID, spec.Image}, reason+": "+message)
		return "", &startError{reason: reason, message: message, until: time.Now().Add(2 * time.Second)}
	}
	p.mu.Lock()
	delete(p.backoff, pullKey{want.pod.UID, spec.Image})
	p.mu.Unlock()
	var size uint64
	if resp, err := p.a.cfg.Images.ImageStatus(ctx, spec, false); err == nil {
		size = resp.GetImage().GetSize()
	}
	say(corev1.EventTypeNormal, "Pulled", fmt.Sprintf("Successfully pulled image %q in %v (%v including waiting). Image size: %v bytes.",
		spec.UserSpecifiedImage, time.Since(begin).Truncate(time.Millisecond), time.Since(asked).Truncate(time.Millisecond), size))
	return ref, nil
}

const (
	reasonPull        = "ErrImagePull"
	reasonPullBackOff = "ImagePullBackOff"
)

// pullFailure is how the status of a container tells of a failed pull. Runtimes
// begin their messages with the reason where they know it.
func pullFailure(image string, err error) (reason, message string) {
	for known, because := range map[string]string{
		"RegistryUnavailable": "the registry is unavailable", "SignatureValidationFailed": "the signature validation failed",
	} {
		if rest, ok := strings.CutPrefix(grpcText(err), known); ok {
			return known, fmt.Sprintf("image pull failed for %s because %s%s", image, because, rest)
		}
	}
	return reasonPull, err.Error()
}

func (p *imagePuller) lock(image string) chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy[image] == nil {
		p.busy[image] = make(chan struct{}, 1)
	}
	return p.busy[image]
}

func (p *imagePuller) waits(key pullKey) (pullBackoff, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b, ok := p.backoff[key]
	return b, ok && time.Now().Before(b.until)
}

func (p *imagePuller) fail(key pullKey, message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for k, b := range p.backoff {
		if now.Sub(b.until) > 2*pullLongest {
			delete(p.backoff, k) // its pod has gone, or does well
		}
	}
	b := p.backoff[key]
	b.wait = min(max(2*b.wait, pullFirst), pullLongest)
	b.until, b.message = now.Add(b.wait), message
	p.backoff[key] = b
}

// pullImages brings the images of a container to the node: its own, whose
// reference it returns, and those of its image volumes.
func (w *worker) pullImages(ctx context.Context, pod *corev1.Pod, c *corev1.Container, sandbox *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	want := wantedImage{pod: pod, sandbox: sandbox, handler: handler, say: func(kind, reason, text string) { w.event(pod, kind, reason, text) }}
	w.volumeImages = map[string]string{}
	for _, v := range pod.Spec.Volumes {
		if v.Image == nil || !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == v.Name }) {
			continue
		}
		want.name, want.policy = v.Image.Reference, v.Image.PullPolicy
		ref, err := w.a.images.ensure(ctx, want)
		if err != nil {
			return "", err
		}
		w.volumeImages[v.Name] = ref
	}
	want.name, want.policy = c.Image, c.ImagePullPolicy
	want.say = func(kind, reason, text string) { w.containerEvent(pod, c.Name, kind, reason, text) }
	return w.a.images.ensure(ctx, want)
}
