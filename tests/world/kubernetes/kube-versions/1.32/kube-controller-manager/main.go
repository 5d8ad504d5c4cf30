// The kube-controller-manager of Kubernetes with one time of the Job controller shortened: where a Job's pod has failed, it waits ten
// real seconds before it makes another. Time is virtual here. The second before it counts a pod cannot be changed in this version.
package main

import (
	"os"
	"time"
	_ "time/tzdata"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/pkg/controller/job"
)

func main() {
	job.DefaultJobPodFailureBackOff = time.Millisecond
	os.Exit(cli.Run(app.NewControllerManagerCommand()))
}
