"""Environment variables of graphs."""


def test_live_executables_are_limited(run_script):
    result = run_script(
        """
        import torch
        x = torch.ones(2, device="musa")
        graphs = []
        for _ in range(3):
            graphs.append(torch.musa.MUSAGraph())
            with torch.musa.graph(graphs[-1]):
                x + 1
        extra = torch.musa.MUSAGraph()
        try:
            with torch.musa.graph(extra):
                x + 1
        except RuntimeError as error:
            print(error)
        graphs.pop().reset()
        with torch.musa.graph(torch.musa.MUSAGraph()):
            x + 1
        print("fits")
        """,
        TORCH_MUSA_SIM_GRAPH_LIMIT="3",
    )
    assert "3 graphs are instantiated" in result.stdout
    assert "TORCH_MUSA_SIM_GRAPH_LIMIT" in result.stdout
    assert "fits" in result.stdout


def test_environment_switches_the_check_on(run_script):
    result = run_script(
        """
        import torch
        x = torch.ones(200, device="musa")
        graph = torch.musa.MUSAGraph()
        with torch.musa.graph(graph):
            y = x + 1
        del x
        try:
            graph.replay()
        except RuntimeError as error:
            print(error)
        """,
        TORCH_MUSA_SIM_GRAPH_CHECK="1",
    )
    assert "argument 'self' of aten::add.Tensor" in result.stdout
