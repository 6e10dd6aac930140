package plan

import "time"

// Estimate is when a rollout will be over that began at start, if the nodes that are left take as
// long as those that have the target. It is zero while no node has it, and when all have.
func (p *Plan) Estimate(start, now time.Time) time.Time {
	if p.Hold != "" || p.Updated == 0 || p.Updated >= p.Total || now.Before(start) {
		return time.Time{}
	}
	each := now.Sub(start) / time.Duration(p.Updated)
	return now.Add(each * time.Duration(p.Total-p.Updated))
}
