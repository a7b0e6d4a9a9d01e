#!/bin/bash
echo "this image stands in for the official one and has no zkCli.sh: the jars it is made of are a server's" >&2
exit 2
