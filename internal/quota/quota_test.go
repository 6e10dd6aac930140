package quota_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/layerwright/layerwright/internal/quota"
)

func TestExplain(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ message, want string }{
		"a quota that is used up": {
			`Error creating: pods "build-a-x" is forbidden: exceeded quota: compute, requested: limits.memory=4Gi,pods=1, used: limits.memory=6Gi,pods=3, limited: limits.memory=8Gi,pods=3`,
			`ResourceQuota "compute" of namespace "os" has no room: limits.memory=4Gi is needed, and 6Gi of 8Gi are used, pods=1 is needed, and 3 of 3 are used; ` +
				`it goes on by itself when there is room; to make room, raise spec.hard of the ResourceQuota, or lower spec.buildResources.limits.memory of the MachineOSConfig`,
		},
		"a quota that is never enough": {
			`TaskRun Pod exceeded available resources: pods "x-pod" is forbidden: exceeded quota: small, requested: memory=512Mi, used: memory=0, limited: memory=256Mi`,
			`ResourceQuota "small" of namespace "os" has no room: memory=512Mi is needed, and 0 of 256Mi are used; ` +
				`raise spec.hard of the ResourceQuota, or lower spec.buildResources.requests.memory of the MachineOSConfig`,
		},
		"a quota of objects": {
			`jobs.batch "build-a" is forbidden: exceeded quota: objects, requested: count/jobs.batch=1, used: count/jobs.batch=2, limited: count/jobs.batch=2`,
			`ResourceQuota "objects" of namespace "os" has no room: count/jobs.batch=1 is needed, and 2 of 2 are used; ` +
				`it goes on by itself when there is room; to make room, raise spec.hard of the ResourceQuota`,
		},
		"a quota that wants limits": {
			`Error creating: pods "build-a-x" is forbidden: failed quota: compute: must specify limits.cpu for: build,export,fetch,push; requests.example.com/gpu for: build`,
			`ResourceQuota "compute" of namespace "os" counts limits.cpu, requests.example.com/gpu, which not every container has: ` +
				`set spec.buildResources.limits.cpu and spec.buildResources.requests.example.com/gpu of the MachineOSConfig`,
		},
		"a quota that wants them of Tekton too": {
			`failed to create task run pod "x": pods "x-pod" is forbidden: failed quota: compute: must specify limits.cpu for: prepare,step-build. Maybe missing or invalid Task os/t`,
			`ResourceQuota "compute" of namespace "os" counts limits.cpu, which not every container has: set spec.buildResources.limits.cpu of the MachineOSConfig, ` +
				`and for Tekton's own containers default-container-resource-requirements in Tekton's ConfigMap config-defaults`,
		},
		"a quota as older API servers say it": {
			`pods "x" is forbidden: failed quota: compute: must specify limits.cpu,limits.memory`,
			`ResourceQuota "compute" of namespace "os" counts limits.cpu, limits.memory, which not every container has: ` +
				`set spec.buildResources.limits.cpu and spec.buildResources.limits.memory of the MachineOSConfig`,
		},
		"limits that are too high": {
			`pods "x" is forbidden: [maximum memory usage per Container is 1Gi, but limit is 4Gi, maximum memory usage per Container is 1Gi, but limit is 4Gi, maximum cpu usage per Container is 1500m.  No limit is specified]`,
			`LimitRange "sizes" of namespace "os": maximum memory per Container is 1Gi, and the limit is 4Gi, maximum cpu per Container is 1500m, and there is no limit; ` +
				`in the MachineOSConfig, set spec.buildResources.limits.memory to at most 1Gi and spec.buildResources.limits.cpu to at most 1500m`,
		},
		"requests that are too low": {
			`pods "x" is forbidden: minimum cpu usage per Container is 500m, but request is 250m`,
			`LimitRange "sizes" of namespace "os": minimum cpu per Container is 500m, and the request is 250m; in the MachineOSConfig, set spec.buildResources.requests.cpu to at least 500m`,
		},
		"limits far above requests": {
			`pods "x" is forbidden: memory max limit to request ratio per Container is 2, but provided ratio is 8.000000`,
			`LimitRange "sizes" of namespace "os": the limit of memory per Container is at most 2 times the request; ` +
				`in the MachineOSConfig, set spec.buildResources.requests.memory to at least 1/2 of the limit`,
		},
		"a default below the request": {
			`Error creating: Pod "x" is invalid: [spec.containers[0].resources.requests: Invalid value: "250m": must be less than or equal to cpu limit of 200m, spec.initContainers[0].resources.requests: Invalid value: "250m": must be less than or equal to cpu limit of 200m]`,
			`LimitRange "sizes" of namespace "os": containers have a cpu limit of 200m by default, and the request is 250m; in the MachineOSConfig, set spec.buildResources.limits.cpu to at least 250m`,
		},
		"a policy": {`pods "x" is forbidden: violates PodSecurity "baseline:latest": hostPort`, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			place := quota.Place{Namespace: "os", Field: "spec.buildResources", Owner: "the MachineOSConfig", LimitRanges: []string{"sizes"}}
			assert.Equal(t, tt.want, place.Explain(tt.message))
		})
	}
	t.Run("several LimitRanges, or none that may be read", func(t *testing.T) {
		t.Parallel()
		const message = `pods "x" is forbidden: minimum cpu usage per Container is 500m, but request is 250m`
		place := quota.Place{LimitRanges: []string{"a", "b"}}
		assert.Contains(t, place.Explain(message), `one of the LimitRanges ["a" "b"] of`)
		assert.Contains(t, new(quota.Place).Explain(message), "a LimitRange of")
		assert.True(t, quota.IsOfLimitRange(message))
		assert.False(t, quota.IsOfLimitRange("exceeded quota: x"))
	})
}
