package simulate

import (
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func run(t *testing.T, r *Runtime, labels, annotations map[string]string) (sandbox, container string) {
	t.Helper()
	config := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "p"}, Labels: labels, Annotations: annotations}
	sandbox, err := r.RunPodSandbox(t.Context(), config, "")
	if err != nil {
		t.Fatal(err)
	}
	container, err = r.CreateContainer(t.Context(), sandbox, &runtimeapi.ContainerConfig{Image: &runtimeapi.ImageSpec{Image: "app"}}, config)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.StartContainer(t.Context(), container); err != nil {
		t.Fatal(err)
	}
	return sandbox, container
}

func TestContainersDoWhatTheirPodSays(t *testing.T) {
	for name, c := range map[string]struct {
		labels, annotations map[string]string
		after               time.Duration
		want                runtimeapi.ContainerState
		exit                int32
	}{
		"runs on":        {nil, nil, time.Hour, runtimeapi.ContainerState_CONTAINER_RUNNING, 0},
		"ends":           {nil, map[string]string{RunFor: "30s"}, time.Minute, runtimeapi.ContainerState_CONTAINER_EXITED, 0},
		"not yet":        {nil, map[string]string{RunFor: "30s"}, time.Second, runtimeapi.ContainerState_CONTAINER_RUNNING, 0},
		"fails":          {nil, map[string]string{ExitCode: "3"}, time.Second, runtimeapi.ContainerState_CONTAINER_EXITED, 3},
		"of a job":       {map[string]string{jobLabel: "j"}, nil, time.Minute, runtimeapi.ContainerState_CONTAINER_EXITED, 0},
		"malformed time": {nil, map[string]string{RunFor: "soon"}, 0, runtimeapi.ContainerState_CONTAINER_EXITED, 128},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, err := New("10.1.0.0/24")
				if err != nil {
					t.Fatal(err)
				}
				_, id := run(t, r, c.labels, c.annotations)
				time.Sleep(c.after)
				synctest.Wait()
				got, err := r.ContainerStatus(t.Context(), id, false)
				if err != nil || got.Status.State != c.want || got.Status.ExitCode != c.exit {
					t.Errorf("got %v exit %d (%v), want %v exit %d", got.Status.State, got.Status.ExitCode, err, c.want, c.exit)
				}
			})
		})
	}
}

func TestAddressesAreGivenBack(t *testing.T) {
	r, err := New("10.1.0.0/30") // two addresses beside the network and the gateway
	if err != nil {
		t.Fatal(err)
	}
	address := func(id string) string {
		s, err := r.PodSandboxStatus(t.Context(), id, false)
		if err != nil {
			t.Fatal(err)
		}
		return s.Status.Network.Ip
	}
	first, _ := run(t, r, nil, nil)
	second, _ := run(t, r, nil, nil)
	if address(first) == address(second) {
		t.Errorf("two pods share %s", address(first))
	}
	if _, err := r.RunPodSandbox(t.Context(), &runtimeapi.PodSandboxConfig{}, ""); err == nil {
		t.Error("an address beyond the range was given out")
	}
	was := address(first)
	if err := r.RemovePodSandbox(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	third, _ := run(t, r, nil, nil)
	if address(third) != was {
		t.Errorf("got %s, want the free %s", address(third), was)
	}
}
