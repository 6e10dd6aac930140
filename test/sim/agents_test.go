package sim

import (
	"time"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/nodes"
)

// agent does the next step of a machine's agent, of its kubelet, and of its drain.
func (w *world) agent(m *machine) {
	if m.agentDown > w.tick || w.serverDown > w.tick {
		return
	}
	w.stage(m)
	if m.busy > w.tick {
		return
	}
	switch m.phase {
	case idle:
		if m.booted == m.target() && !m.IsMoving() && m.edited {
			m.findEdit()
			return
		}
		if m.booted == m.target() && !m.IsMoving() && m.State == mcfgv1.NodeStateDegraded {
			m.State, m.Reason = mcfgv1.NodeStateDone, "" // it was told to stay where it is
			m.Arrived = w.now().Add(m.skew)
			return
		}
		if m.LiveOnly && m.booted != m.target() {
			w.changeLive(m)
			return
		}
		if (m.booted != m.target() && m.State != mcfgv1.NodeStateDegraded) || m.wantsAnother() {
			m.State, m.Reason = mcfgv1.NodeStateWorking, ""
			m.DesiredDrain, m.ReportedDesired = mcfgv1.DrainPrefix+m.DesiredConfig, m.target()
			m.Unschedulable = true
			m.phase, m.busy = draining, w.until(3)
		}
	case draining:
		w.drain(m)
	case rebooting:
		if m.lost <= w.tick {
			m.phase, m.busy = returning, w.until(2)
		}
	case returning:
		w.boot(m)
	}
}

// changeLive gives a machine what it was told to have while it runs, unless it finds that it can't:
// then it says so, and stays until it may go away.
func (w *world) changeLive(m *machine) {
	if m.StagedChange != mcfgv1.NodeChangeLive || !w.calm && w.chance(10) {
		m.StagedChange = mcfgv1.NodeChangeReboot
		return
	}
	m.boots = m.target()
	w.arrive(m)
}

// findEdit has a machine say that a file was edited, which stays as it is through updates.
func (m *machine) findEdit() {
	m.State, m.Reason, m.ReportedDesired = mcfgv1.NodeStateDegraded, "a file was edited", m.target()
}

// wantsAnother reports whether a failed machine was given another target since.
func (m *machine) wantsAnother() bool {
	return m.State == mcfgv1.NodeStateDegraded && m.booted != m.target() && m.Reason != failed(m.DesiredConfig)
}

func failed(config string) string { return "booted the old image instead of that of " + config }

// stage pulls in the background.
func (w *world) stage(m *machine) {
	switch {
	case !m.Stages || m.oldAgent > w.tick || m.StageImage == "" || m.StagedImage == m.StageImage || m.phase != idle:
		m.pulling = ""
	case w.registryDown > w.tick:
		m.StageError = "the registry does not answer"
	case m.pulling != m.StageImage:
		m.pulling, m.StageError = m.StageImage, ""
	case !w.calm && w.chance(10):
		m.StageError = "no space left on device"
	case w.chance(2):
		m.StagedImage, m.StageError, m.StagedChange = m.pulling, "", mcfgv1.NodeChangeReboot
		if w.chance(3) {
			m.StagedChange = mcfgv1.NodeChangeSoftReboot
		}
		if w.live[m.pulling] && !w.chance(5) {
			m.StagedChange = mcfgv1.NodeChangeLive
		}
	}
}

// isStaging reports whether a machine was asked to stage an image that it does not hold.
func (m *machine) isStaging(image string) bool {
	return m.StageImage == image && m.StagedImage != image && m.CurrentImage != image
}

func (w *world) drain(m *machine) {
	if m.blocked > w.tick {
		m.DrainBlocked = "pod shop/db-0 blocked by budget db"
		return
	}
	m.DrainBlocked, m.LastAppliedDrain = "", m.DesiredDrain
	if m.Stages || w.registryDown <= w.tick { // an agent that does not stage pulls now
		m.State, m.Ready = mcfgv1.NodeStateRebooting, false
		m.phase, m.busy = rebooting, w.until(4)
		m.boots, m.Rebooting = m.target(), w.now()
	}
}

func (w *world) boot(m *machine) {
	m.Ready, m.phase, m.Rebooting = true, idle, time.Time{}
	m.Unschedulable = m.cordoned
	m.DesiredDrain = mcfgv1.UncordonPrefix + m.DesiredConfig
	m.LastAppliedDrain = m.DesiredDrain
	if m.bootsOld {
		m.bootsOld, m.ReportedDesired = false, m.target()
		m.State, m.Reason = mcfgv1.NodeStateDegraded, failed(m.DesiredConfig)
		return
	}
	w.arrive(m)
}

// arrive has a machine run what it was to run next.
func (w *world) arrive(m *machine) {
	m.booted = m.boots
	if w.hit[m.booted.Image] == nil {
		w.hit[m.booted.Image] = map[string]bool{}
	}
	w.hit[m.booted.Image][m.Name] = true
	if m.booted != m.target() {
		m.State = mcfgv1.NodeStateWorking // it was told to go elsewhere meanwhile
		return
	}
	m.CurrentConfig, m.CurrentImage = m.DesiredConfig, m.DesiredImage
	m.State, m.Reason = mcfgv1.NodeStateDone, ""
	if m.edited = m.edited && !m.heals; m.edited {
		m.findEdit()
	}
	if !m.LiveOnly { // else the condition says no new time
		m.Arrived = w.now().Add(m.skew)
	}
}

// target is what a machine was told to have.
func (m *machine) target() nodes.Target {
	if m.DesiredConfig == "" {
		return m.has()
	}
	return nodes.Target{Config: m.DesiredConfig, Image: m.DesiredImage}
}

// chaos is what people, machines and networks do in one tick.
func (w *world) chaos() {
	m := w.machines[w.random.IntN(len(w.machines))]
	switch w.random.IntN(52) {
	case 0:
		w.newTarget()
		w.say("the target is %s, held: %q", w.target.Config, w.hold)
	case 1:
		if !w.large {
			w.setMaxUnavailable()
		}
	case 2:
		w.pool.Spec.Paused = !w.pool.Spec.Paused
	case 3:
		w.controllerDown = w.until(20)
	case 4:
		w.serverDown = w.until(10)
	case 5:
		w.registryDown = w.until(20)
	case 6:
		m.blocked = w.until(30)
	case 7:
		m.lost = w.until(60)
	case 8:
		m.bootsOld = true
	case 9:
		m.agentDown = w.until(20)
	case 10:
		m.cordoned = !m.cordoned
		m.Unschedulable = m.cordoned || m.phase != idle
	case 11:
		if m.phase == idle {
			m.Ready = !m.Ready // the kubelet flaps
		}
	case 12:
		if len(w.machines) < 12 && !w.large {
			w.join()
		}
	case 13:
		if len(w.machines) > 1 {
			w.delete(m)
		}
	case 14:
		if w.hold == "" {
			w.hold = "MachineOSImage is not ready: NotVerified"
		} else {
			w.hold, w.verified[w.target.Image] = "", true
		}
	case 15:
		m.DiskPressure = !m.DiskPressure
	case 16:
		m.flaps = w.until(6)
	case 17:
		w.resume()
	case 18:
		m.oldAgent = w.until(30)
	case 19:
		m.claim(w.pool.Name)
	case 20:
		w.jumped = time.Duration(w.random.IntN(25)-12) * time.Hour
		w.say("the clock says %s", w.now())
	case 21:
		w.othersFirst = w.until(20)
	case 22:
		if m.phase == idle && m.State == mcfgv1.NodeStateDone {
			m.findEdit()
			m.agentDown = w.until(20)
		}
	case 23:
		w.loseZone(m.Zone)
	case 24:
		m.skew = time.Duration(w.random.IntN(25)-12) * time.Hour
	case 25:
		w.oldTarget()
		w.say("an old spec asks for %s, quarantined: %t", w.target.Config, w.quarantined[w.target.Image])
	case 26:
		m.edited = !m.edited
	}
}

// loseZone takes the power from all machines of a zone: they are not Ready, their agents do
// nothing, and those that reboot do not return for a while.
func (w *world) loseZone(zone string) {
	until := w.until(60)
	w.say("zone %q is lost until %d", zone, until)
	for _, m := range w.machines {
		if m.Zone == zone {
			m.Ready, m.agentDown, m.lost = false, until, until
		}
	}
}

// claim has two custom pools select a machine beside its pool, or no more.
func (m *machine) claim(pool string) {
	if len(m.selecting) > 1 {
		m.selecting = m.selecting[:1]
	} else if pool != mcfgv1.PoolMaster { // which no custom pool takes from
		m.selecting = append(m.selecting, "gpu", "infra")
	}
}

func (w *world) delete(gone *machine) {
	var rest []*machine
	for _, m := range w.machines {
		if m != gone {
			rest = append(rest, m)
		}
	}
	w.machines = rest
}

// peace ends all that is broken, and gives the pool a new target, as who mends a failed image does.
func (w *world) peace() {
	w.calm = true
	w.controllerDown, w.serverDown, w.registryDown, w.othersFirst = 0, 0, 0, 0
	w.pool.Spec.Paused = false
	for _, m := range w.machines {
		m.blocked, m.lost, m.agentDown, m.bootsOld, m.cordoned = 0, 0, 0, false, false
		m.DiskPressure, m.StageError, m.flaps, m.oldAgent, m.edited = false, "", 0, 0, false
		m.selecting = m.selecting[:1]
		if m.phase == idle {
			m.Ready, m.Unschedulable = true, false
		}
	}
	w.newTarget()
}

// has is what a machine has.
func (m *machine) has() nodes.Target {
	return nodes.Target{Config: m.CurrentConfig, Image: m.CurrentImage}
}
