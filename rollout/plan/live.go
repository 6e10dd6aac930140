package plan

import mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"

// mayStay reports whether a node that runs the image is asked to change as it runs: what else a
// policy wants, only its agent knows, and it asks for a turn then.
func (d *decision) mayStay(n *Node) bool {
	runsImage := d.Target.Image != "" && n.CurrentImage == d.Target.Image && n.DesiredImage == d.Target.Image
	return runsImage && n.Stages && n.SameArguments && n.StagedImage == "" && !n.IsMoving() && !IsControlPlane(d.Pool)
}

// waitsForTurn reports whether the node was to change as it runs, and its agent says that it can't:
// then it has begun nothing. One that holds no image has not answered yet.
func (n *Node) waitsForTurn() bool {
	return n.IsMoving() && n.LiveOnly && n.StagedImage != "" && n.StagedChange != mcfgv1.NodeChangeLive
}
