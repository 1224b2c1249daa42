package runtime

import (
	"context"
	"fmt"
	"strings"
	"time"

	internalapi "k8s.io/cri-api/pkg/apis"
	cri "k8s.io/cri-client/pkg"
)

// requestTimeout bounds each CRI call that does not stream. It is upstream's
// default of --runtime-request-timeout.
const requestTimeout = 2 * time.Minute

// Connect opens the CRI services at an endpoint: a socket's path, or a
// unix:// address.
func Connect(ctx context.Context, endpoint string) (internalapi.RuntimeService, internalapi.ImageManagerService, error) {
	if strings.HasPrefix(endpoint, "/") {
		endpoint = "unix://" + endpoint
	}
	runtimes, err := cri.NewRemoteRuntimeServiceBuilder().WithEndpoint(endpoint).WithConnectionTimeout(requestTimeout).Build(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to container runtime %s: %w", endpoint, err)
	}
	images, err := cri.NewRemoteImageServiceBuilder().WithEndpoint(endpoint).WithConnectionTimeout(requestTimeout).Build(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to image service %s: %w", endpoint, err)
	}
	return runtimes, images, nil
}
