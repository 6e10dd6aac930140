package host

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
)

func TestLockOfWhatIsStaged(t *testing.T) {
	t.Parallel()
	const admin = "ostree admin lock-finalization"
	open := map[string]string{"bootc status": string(read(t, "bootc-1.16.json")), admin: "", "rpm-ostree status": string(read(t, "rpm-ostree-2024.json"))}
	shut := map[string]string{"bootc status": string(read(t, "bootc-local-packages.json")), admin: "", "rpm-ostree status": string(read(t, "rpm-ostree-busy.json"))}
	tests := map[string]struct {
		answers map[string]string
		lock    bool
		want    map[Mode][]string
	}{
		"is locked":                    {open, true, map[Mode][]string{ModeBootc: {admin}, ModeRPMOSTree: {admin}}},
		"stays locked":                 {shut, true, map[Mode][]string{ModeRPMOSTree: {admin}}}, // which may have the file alone
		"is unlocked, whoever lock it": {shut, false, map[Mode][]string{ModeBootc: {admin + " --unlock"}, ModeRPMOSTree: {admin + " --unlock"}}},
		"stays unlocked":               {open, false, nil},
		"by an ostree without":         {map[string]string{"bootc status": shut["bootc status"], "rpm-ostree status": shut["rpm-ostree status"]}, false, nil},
		"of a composefs store":         {map[string]string{"bootc status": string(read(t, "bootc-composefs.json")), "rpm-ostree status": open["rpm-ostree status"], admin: ""}, true, map[Mode][]string{ModeRPMOSTree: {admin}}},
	}
	for name, tt := range tests {
		for _, mode := range []Mode{ModeBootc, ModeRPMOSTree} {
			t.Run(name+" "+string(mode), func(t *testing.T) {
				t.Parallel()
				answers := map[string]string{"bootc --version": "bootc 1.16.9", "rpm-ostree --version": "2026.2"}
				for command, answer := range tt.answers {
					answers[command] = answer
				}
				run := &fakeRunner{answers: answers}
				h, err := detect(t, run, mode)
				require.NoError(t, err)
				if tt.lock {
					err = h.Lock(t.Context())
				} else {
					err = h.Unlock(t.Context())
				}
				require.NoError(t, err)
				var ran []string
				for _, command := range run.ran {
					if command == admin || command == admin+" --unlock" {
						ran = append(ran, command)
					}
				}
				assert.Equal(t, tt.want[mode], ran)
			})
		}
	}
}

func TestFinalizeError(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ journal, want string }{
		"said at the next boot": {
			"Starting OSTree Complete Boot...\nerror: ostree-finalize-staged.service failed on previous boot: Finalizing deployment: No space left on device\nFailed to start OSTree Complete Boot.\n",
			"ostree-finalize-staged.service: Finalizing deployment: No space left on device",
		},
		"said at shutdown": {"Stopping OSTree Finalize Staged Deployment...\nerror: opendir(boot): Operation not permitted\n", "ostree-finalize-staged.service: opendir(boot): Operation not permitted"},
		"too slow": {
			"Stopping OSTree Finalize Staged Deployment...\nostree-finalize-staged.service: Stopping timed out. Terminating.\nostree-finalize-staged.service: Failed with result 'timeout'.\n",
			"ostree-finalize-staged.service: Stopping timed out. Terminating.",
		},
		"nothing failed": {"Finalizing staged deployment\nFinished writing deployment\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, finalizeError(tt.journal))
		})
	}
	run := &fakeRunner{answers: map[string]string{"bootc --version": "bootc 1.16.9", "journalctl --quiet --no-pager --output=cat --lines=20 --boot=-1": "error: x\n"}}
	h, err := detect(t, run, ModeBootc)
	require.NoError(t, err)
	assert.Equal(t, "ostree-finalize-staged.service: x", h.WhyNotBooted(t.Context()))
}

func TestCheckStaging(t *testing.T) {
	t.Parallel()
	for reason, s := range map[string]Status{
		"":                         {Booted: &Deployment{}, UsrIsUnlocked: true},
		mcfgv1.ReasonReadOnlyHost:  {IsReadOnly: true, Booted: &Deployment{HasLocalPackages: true}},
		mcfgv1.ReasonLocalPackages: {Booted: &Deployment{HasLocalPackages: true}},
		mcfgv1.ReasonHostBusy:      {Booted: &Deployment{}, Transaction: "upgrade"},
	} {
		err := s.CheckStaging()
		assert.Equal(t, reason, fault.Reason(err))
		assert.Equal(t, reason != "", IsAboutHost(err))
	}
}

func TestUnstagingFromAComposefsStore(t *testing.T) {
	t.Parallel()
	run := &fakeRunner{answers: map[string]string{"bootc --version": "bootc 1.16.9", "bootc status": string(read(t, "bootc-composefs.json")), "ostree": ""}}
	h, err := detect(t, run, ModeBootc)
	require.NoError(t, err)
	err = h.Unstage(t.Context(), image("2"))
	require.ErrorContains(t, err, "its bootc 1.16 has no command that removes a staged image from a composefs store")
	assert.Equal(t, mcfgv1.ReasonUnstagingUnsupported, fault.Reason(err))
	assert.NotContains(t, run.ran, "ostree admin undeploy 0")
}

func TestAdmits(t *testing.T) {
	t.Parallel()
	const signed, reject, anything = `[{"type":"sigstoreSigned"}]`, `[{"type":"reject"}]`, `[{"type":"insecureAcceptAnything"}]`
	policy := func(byDefault, docker string) string {
		return `{"default":` + byDefault + `,"transports":{"docker":{` + docker + `}}}`
	}
	for name, tt := range map[string]struct {
		policy string
		want   bool
	}{
		"the repository":        {policy(reject, `"registry.example.com/os/worker":`+signed), true},
		"another repository":    {policy(reject, `"registry.example.com/os/other":`+signed), false},
		"a name above it":       {policy(reject, `"registry.example.com/os":`+signed), true},
		"the host":              {policy(reject, `"registry.example.com":`+signed), true},
		"a pattern":             {policy(reject, `"*.example.com":`+signed), true},
		"all of docker":         {policy(reject, `"":`+signed), true},
		"the nearest counts":    {policy(signed, `"registry.example.com":`+signed+`,"registry.example.com/os/worker":`+reject), false},
		"everything by default": {policy(anything, `"registry.example.com/os/worker":`+signed), false},
		"nothing":               {policy(reject, ``), false},
		"a repository without":  {policy(reject, `"registry.example.com/os/worker":`+anything), false},
		"a registry without":    {policy(signed, `"":`+anything), false},
		"more than anything":    {policy(reject, `"registry.example.com":[{"type":"insecureAcceptAnything"},{"type":"signedBy"}]`), true},
		"signatures of all":     {policy(signed, ``), true},
		"an empty one":          {`{}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Admits([]byte(tt.policy), image("1"))
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
	got, err := Admits([]byte(policy(reject, `"*.example.com":`+signed)), mcfgv1.ImageDigestFormat("registry.example.com:5000/os/worker@"+digit("1")))
	require.NoError(t, err)
	assert.True(t, got, "a pattern has no port")
	_, err = Admits([]byte("no JSON"), image("1"))
	require.ErrorContains(t, err, "reading the host's policy for signatures of images")
}
