// rclone as it is released, with the backends that the bench needs: a fraction of the time to build.
package main

import (
	_ "github.com/rclone/rclone/backend/hdfs"
	"github.com/rclone/rclone/cmd"
	_ "github.com/rclone/rclone/cmd/copy"
)

func main() { cmd.Main() }
