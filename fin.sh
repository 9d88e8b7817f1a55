. /work/wt/env.sh precision; cd /tmp/precision
SIM=1 timeout 420 python rd.py held held.json > held2.log 2>&1
SIM=1 timeout 420 python rd.py open open.json > open2.log 2>&1
