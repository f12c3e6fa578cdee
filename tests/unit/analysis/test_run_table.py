"""The runs that count, whichever page asks."""

import numpy as np
import synthetic

from sipsched.analysis.run_table import counted


def test_an_invalid_run_has_texts_and_no_numbers():
    ds = synthetic.combined([synthetic.Run(rep=1), synthetic.Run(rep=2)], synthetic.two_modes)
    ds["status"].loc[{"rep": 2}] = "invalid"
    runs = counted(ds)
    for name, value in (("achieved_cps", 1000.0), ("so_rcvbuf", 425984.0)):
        np.testing.assert_array_equal(runs[name].to_numpy().ravel(), [value, np.nan])
    assert np.isnan(runs["count"].sel(rep=2)).all()
    assert runs["count"].sel(rep=1, message_type="INVITE").item() > 0
    assert (runs["mode_label"] == "default (EEVDF translation)").all()
    assert runs.attrs == ds.attrs
    assert ds["achieved_cps"].sel(rep=2).item() == 1000  # the summary itself stays
