# An image that runs a whole cluster in one privileged container:
#
#   docker build -t orrery .
#   docker run -d --name orrery --hostname orrery --privileged --tmpfs /run \
#     --stop-timeout 120 -p 6443:6443 -v orrery:/var/lib/orrery orrery
#   docker exec orrery kubectl get nodes
#
# and any part of one: docker run --rm orrery kube-scheduler --help
# docs/operating.md says more.

FROM node:20 AS page
WORKDIR /src/web/app
COPY web/app/package.json web/app/package-lock.json ./
RUN npm ci --no-audit --no-fund
COPY web/app ./
RUN npm run build

FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
COPY --from=page /src/web/dist web/dist
# Newer than its sources, so that make takes the page as it is.
RUN touch web/dist/index.html && make build

FROM debian:12-slim
# runc starts the containers; the others are what kube-proxy and the node agent
# speak to the kernel with, and what one looks for when the network is wrong.
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates conntrack iproute2 iptables nftables runc \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /src/bin/orrery /usr/local/bin/orrery
# The parts by the names that manifests call them by.
RUN for name in etcd etcdctl etcdutl kube-apiserver kube-controller-manager kube-scheduler \
      kubelet kube-proxy cluster-dns kubectl; \
    do ln -s orrery /usr/local/bin/$name; done
# overlayfs does not stack on the container's own file system; a volume is none.
VOLUME /var/lib/orrery
EXPOSE 6443
ENTRYPOINT ["orrery"]
CMD ["up", "--foreground"]
